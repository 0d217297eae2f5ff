/**
 * Plays one episode with a policy, from its ticket to its outcome. `play-turns.ts` plays the turns; `transcript.ts` makes their prompts
 * and keeps the tokens.
 *
 * - On one machine with one engine and thread count, the outcome is a function of ticket, weights and run seed.
 * - An error of the env is the outcome `envError`; it never becomes a turn with reward 0.
 */
import { faithfulness } from "../../envs/analysis/reasoning.ts";
import type { EnvTag } from "../../envs/tag.ts";
import type { ReplyRequest } from "../../model/decode/generate.ts";
import { hash64 } from "../../model/rng.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { RunConfig } from "../config/config.ts";
import { EpisodeError } from "../errors.ts";
import type { Outcome, PolicyVersion, Ticket } from "../protocol.ts";
import { playedEnvs } from "./envs-of-run.ts";
import { type EnvConnection, type Player, playTurns, statusOf } from "./play-turns.ts";
import { type ContextRules, type ReplyTokens, Transcript } from "./transcript.ts";

export interface PlayRules extends ContextRules {
  /** Limit on the actions of a turn, by the name of the env. */
  readonly actionsPerTurnMax: Readonly<Record<string, number>>;
  /** Seed of the run. The seed and the episode's name decide the coins: the random numbers that choose tokens. */
  readonly seed: number;
  /** Penalty of a turn in whose thought all claims are false (`env.reasoningWeight`). 0: thoughts have no penalty. */
  readonly reasoningWeight: number;
}

/** The methods of the policy that an episode calls. Each episode has one token sequence. */
export interface EpisodePolicy {
  open(sequence: string): Promise<void>;
  reply(sequence: string, request: ReplyRequest): Promise<ReplyTokens>;
  close(sequence: string): Promise<void>;
}

export interface PlayContext extends EnvConnection {
  readonly rules: PlayRules;
  readonly tag: EnvTag;
  readonly dialogue: Dialogue;
  readonly policy: EpisodePolicy;
  /** The weights that write the first reply, and every later reply that names no version of its own. */
  readonly weights: PolicyVersion;
}

export function rulesOf({ seed, prompt, env, rollout }: RunConfig): PlayRules {
  const perTurn = playedEnvs({ env }).map((one) => [one.name, one.actionsPerTurnMax ?? env.actionsPerTurnMax]);
  return {
    actionsPerTurnMax: Object.fromEntries(perTurn),
    seed,
    layout: prompt.layout,
    compat: prompt.compat !== "strict",
    context: prompt.context,
    contextTurnsMax: prompt.contextTurnsMax,
    overflow: prompt.overflow,
    think: env.think,
    reasoningWeight: env.reasoningWeight,
    replyTokensMax: rollout.replyTokensMax,
    contextTokensMax: rollout.contextTokensMax,
  };
}

/**
 * @throws {EpisodeError} if the env server was lost ("closed") or is full ("capacity"): the caller may play the episode again.
 */
export async function playEpisode(ticket: Ticket, context: PlayContext): Promise<Outcome> {
  const { policy, tag, dialogue, rules, weights } = context;
  const sequence = `${ticket.episode} ${ticket.attempt}`;
  await policy.open(sequence);
  try {
    const transcript = new Transcript(
      tag,
      dialogue,
      rules,
      ticket.actionsPerTurnMax ?? rules.actionsPerTurnMax[ticket.env],
    );
    const played = await playTurns(ticket, tokenPlayer(ticket, sequence, transcript, context), context);
    if (played.turns.length === 0) {
      const detail =
        `the first prompt has ${transcript.refusedTokens} tokens, which leaves no room for a reply in ` +
        `rollout.contextTokensMax (${rules.contextTokensMax}); raise it, or shorten the observation by the env's \`brief\``;
      return { status: "aborted", detail };
    }
    // Only these two fields of `weights` enter the trajectory: another field could replace a field of the trajectory.
    const { version, digest } = weights;
    const module = tag.digest === undefined ? {} : { envDigest: tag.digest };
    return {
      status: statusOf(played.stop),
      ...played,
      trajectory: { ...transcript.trajectory(), version, digest, ...module },
    };
  } catch (error) {
    if (error instanceof EpisodeError && error.boundary === "env") return { status: "envError", detail: error.message };
    throw error;
  } finally {
    await policy.close(sequence);
  }
}

/** A player that gets each prompt from the transcript, and each reply from the policy. */
function tokenPlayer(
  { episode, temperature, topP, topK }: Ticket,
  sequence: string,
  transcript: Transcript,
  { policy, dialogue, rules, tag }: PlayContext,
): Player {
  const coins = { seed: rules.seed, episode: hash64(episode) };
  let lastReply: ReplyTokens = { tokens: [], logProbs: [], cut: false };
  return {
    async reply(observation, actionsLeft) {
      const prompt = transcript.addPrompt(observation, actionsLeft);
      if (prompt === null) return null;
      lastReply = await policy.reply(sequence, {
        keep: prompt.keep,
        prompt: prompt.prompt,
        tokensMax: prompt.tokensMax,
        coins,
        coinsFrom: prompt.start,
        settings: { temperature, topP, topK },
        stops: dialogue.stops,
      });
      return { text: transcript.text(lastReply.tokens), cut: lastReply.cut, dropped: transcript.dropped };
    },
    turnPlayed: (turn) => transcript.addTurn(lastReply, turn),
    // A thought may cost a penalty, but earns no reward: otherwise longer thoughts and more turns would earn more.
    penalty(turn) {
      if (rules.reasoningWeight === 0 || tag.reasoning === undefined) return 0;
      return rules.reasoningWeight * (1 - (faithfulness(tag.reasoning, turn) ?? 1));
    },
  };
}
