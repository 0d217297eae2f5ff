/**
 * One episode from its ticket to its outcome: where an env's text meets a policy's tokens.
 *
 * - What the policy is shown, and that nothing it wrote is encoded again, is transcript.ts's affair.
 * - The outcome is a function of ticket, weights and run seed. Played again, elsewhere, it comes out the same.
 * - An error of the env is the outcome `envError`; it is never a turn without reward.
 * - An episode that is not played to its end is closed at the env server, which would keep it otherwise.
 */
import { faithfulness } from "../../envs/analysis/reasoning.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { hash64 } from "../../model/rng.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { EnvAsk } from "../env-server/env-server.ts";
import { EpisodeError } from "../errors.ts";
import type { AnswerTo, Messages, Outcome, StopReason, Ticket, TurnRecord } from "../protocol.ts";
import type { Replies } from "../sampler/policy.ts";
import { type ContextRules, type GivenReply, type Question, Transcript } from "./transcript.ts";

export interface PlayRules extends ContextRules {
  /** Of the run: with the episode's name it makes the coins. */
  readonly seed: number;
  /** What a turn loses if its thought is all untrue; 0: thoughts are not judged here. */
  readonly reasoningWeight: number;
}

export interface PlayContext {
  readonly rules: PlayRules;
  readonly tag: EnvTag;
  readonly dialogue: Dialogue;
  readonly policy: Replies;
  /** The weights that every token of this episode is written with. */
  readonly weights: { readonly version: number; readonly digest: string };
  /** Ask the env server that holds this episode. */
  askEnv<A extends EnvAsk>(ask: A): Promise<AnswerTo<A>>;
  /** Tell it to forget this episode. */
  closeEnv(close: Messages["env.close"]): void;
}

/**
 * @throws {EpisodeError} with code "closed" or "deadline" if the env server was lost: the episode may be played again.
 */
export async function playEpisode(ticket: Ticket, context: PlayContext): Promise<Outcome> {
  const { policy } = context;
  const sequence = `${ticket.episode} ${ticket.attempt}`;
  await policy.open(sequence);
  const play = new Play(ticket, sequence, context);
  try {
    return await play.run();
  } catch (error) {
    if (error instanceof EpisodeError && error.boundary === "env") return { status: "envError", detail: error.message };
    throw error;
  } finally {
    if (play.isOpen) context.closeEnv({ type: "env.close", episode: ticket.episode });
    await policy.close(sequence);
  }
}

class Play {
  readonly #ticket: Ticket;
  readonly #sequence: string;
  readonly #context: PlayContext;
  readonly #transcript: Transcript;
  readonly #coins;
  readonly #turns: TurnRecord[] = [];
  readonly #extra: Record<string, number> = {};
  /** The env server holds this episode, or may. */
  isOpen = false;

  constructor(ticket: Ticket, sequence: string, context: PlayContext) {
    this.#ticket = ticket;
    this.#sequence = sequence;
    this.#context = context;
    this.#transcript = new Transcript(context.tag, context.dialogue, context.rules);
    this.#coins = { seed: context.rules.seed, episode: hash64(ticket.episode) };
  }

  async run(): Promise<Outcome> {
    const { episode, env, layoutSeed, dynamicsSeed } = this.#ticket;
    this.isOpen = true;
    let { observation, actionsLeft } = await this.#ask({ type: "env.open", episode, env, layoutSeed, dynamicsSeed });
    for (let turn = 0; ; turn++) {
      const question = this.#transcript.ask(observation, actionsLeft);
      if (question === null) return this.#outcome("context", false, observation);
      const reply = await this.#reply(question);
      const text = this.#transcript.text(reply.tokens);
      const stepped = await this.#ask({ type: "env.step", episode, turn, reply: text });
      this.#record(observation, reply, stepped);
      ({ observation, actionsLeft } = stepped);
      this.isOpen = stepped.ending === null;
      if (stepped.ending !== null) return this.#outcome(stepped.ending, stepped.success, observation);
    }
  }

  #reply({ keep, prompt, start, tokensMax }: Question): Promise<GivenReply> {
    const { policy, dialogue } = this.#context;
    const { temperature, topP, topK } = this.#ticket;
    return policy.reply(this.#sequence, {
      keep,
      prompt,
      tokensMax,
      coins: this.#coins,
      coinsFrom: start,
      settings: { temperature, topP, topK },
      stops: dialogue.stops,
    });
  }

  #record(observation: string, reply: GivenReply, stepped: Messages["env.stepped"]): void {
    const { actions, reward, wellFormed, effective, valid, extra } = stepped;
    const text = this.#transcript.text(reply.tokens);
    const penalty = stepped.penalty - this.#untruth({ reply: text, observation, actions });
    this.#transcript.played(reply, { ...stepped, penalty });
    this.#turns.push({
      observation,
      reply: text,
      cut: reply.cut,
      dropped: this.#transcript.dropped,
      actions,
      reward,
      penalty,
      wellFormed,
      effective,
      valid,
    });
    for (const [name, value] of Object.entries(extra)) this.#extra[name] = (this.#extra[name] ?? 0) + value;
  }

  /** What a turn loses for what its thought claims. A cost and no gain: nobody should earn by talking, or by taking more turns. */
  #untruth(turn: Parameters<typeof faithfulness>[1]): number {
    const { tag, rules } = this.#context;
    if (rules.reasoningWeight === 0 || tag.reasoning === undefined) return 0;
    return rules.reasoningWeight * (1 - (faithfulness(tag.reasoning, turn) ?? 1));
  }

  /** An answer of the right kind. @throws {EpisodeError} saying at which boundary it failed */
  async #ask<A extends EnvAsk>(ask: A) {
    const answer = await this.#context.askEnv(ask);
    if (answer.type === "failed")
      throw new EpisodeError(answer.detail, answer.code === "deadline" ? "closed" : answer.code);
    return answer as Exclude<AnswerTo<A>, { type: "failed" }>;
  }

  #outcome(stop: StopReason, success: boolean, finalObservation: string): Outcome {
    const { rules, weights } = this.#context;
    if (this.#turns.length === 0) {
      const { contextTokensMax } = rules;
      return {
        status: "aborted",
        detail: `the first prompt leaves no room in rollout.contextTokensMax, ${contextTokensMax}`,
      };
    }
    return {
      // The game's own endings are scored; a budget that ran out cut the episode short.
      status: stop === "success" || stop === "over" ? "scored" : "truncated",
      stop,
      success,
      turns: this.#turns,
      finalObservation,
      extra: this.#extra,
      trajectory: {
        ...this.#transcript.trajectory(),
        // Named one by one: an object with more in it must not replace what was played.
        version: weights.version,
        digest: weights.digest,
      },
    };
  }
}
