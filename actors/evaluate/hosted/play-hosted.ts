/**
 * Evaluates a hosted model on fixed boards. Envs, prompts and the parsing of replies are the same as for a policy of Bunraku, but replies are
 * text and not tokens.
 *
 * - At most `requestsMax` episodes run at once. Each episode has at most one open request.
 * - If an episode cannot be played, the evaluation ends with an error, because such an episode is no failure of the model. The results keep
 *   all episodes that finished.
 */
import type { Seeds } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import { shownReply } from "../../../envs/text/answer.ts";
import { type AnsweredTurn, contextMessages } from "../../../envs/text/context.ts";
import type { Clock } from "../../clock.ts";
import type { RunConfig } from "../../config/config.ts";
import { EnvServer } from "../../env-server/env-server.ts";
import { EpisodeError } from "../../errors.ts";
import type { PlayedTicket } from "../../play/finished-ticket.ts";
import { type Player, playTurns, statusOf } from "../../play/play-turns.ts";
import type { PlayedOutcome, Ticket } from "../../protocol.ts";
import { validationTickets } from "../../training/tickets-to-play.ts";
import { PLAYER, type PolicyEvaluation, summary } from "../evaluate.ts";
import { type HostedClient, HostedError } from "./client.ts";
import type { HostedEpisode, Results } from "./results.ts";

export interface HostedEvaluation {
  /** The evaluation reads only `env`, `envServer`, `prompt` and `validate`. */
  readonly config: RunConfig;
  readonly tag: EnvTag;
  readonly client: Pick<HostedClient, "complete" | "stop">;
  /** Finished episodes. The evaluation does not play the tickets of these episodes again. */
  readonly results: Results;
  readonly requestsMax: number;
  readonly clock: Clock;
  readonly warn: (text: string) => void;
  /** The evaluation calls this function after each episode. The counts include the episodes that `results` had at the start. */
  readonly progress?: (played: number, solved: number) => void;
}

/** @throws {Error} the first error of an episode, as soon as no other episode runs */
export async function evaluateHosted(options: HostedEvaluation): Promise<PolicyEvaluation> {
  const { config, tag, client, results, requestsMax, clock, warn, progress } = options;
  const tickets = validationTickets(config, "hosted", 0, 0);
  const find = () => (seeds: Seeds) => openEpisode(tag.open(seeds), config.env);
  const envs = new EnvServer({ ...config.envServer, find, episodesMax: requestsMax, clock, warn });
  const known = () => tickets.flatMap((_, i) => results.episodes.get(i) ?? []);
  const open = [...tickets.keys()].filter((i) => !results.episodes.has(i));
  let failed: { readonly error: unknown } | null = null;
  async function playOn(): Promise<void> {
    for (let index = open.shift(); index !== undefined; index = open.shift()) {
      results.add(await playOne(index, tickets[index]!, options, envs));
      const now = known();
      progress?.(now.length, now.filter(({ success }) => success).length);
    }
  }
  await Promise.all(
    Array.from({ length: Math.min(requestsMax, open.length) }, () =>
      playOn().catch((error) => {
        failed ??= { error };
        open.length = 0;
        client.stop();
      }),
    ),
  );
  await envs.stop();
  if (failed !== null) throw (failed as { error: unknown }).error;
  return summary(
    known().map((episode) => playedTicket(tickets[episode.index]!, episode)),
    tag,
  );
}

async function playOne(
  index: number,
  ticket: Ticket,
  { config, tag, client }: HostedEvaluation,
  envs: EnvServer,
): Promise<HostedEpisode> {
  const { prompt, env: rules } = config;
  const context = {
    layout: prompt.layout,
    compat: prompt.compat !== "strict",
    think: rules.think,
    mode: prompt.context,
    window: prompt.contextTurnsMax,
  };
  const answered: AnsweredTurn[] = [];
  let now = { observation: "", actionsLeft: 0 };
  let [inputTokens, outputTokens] = [0, 0];
  const player: Player = {
    async reply(observation, actionsLeft) {
      now = { observation, actionsLeft };
      const messages = contextMessages(tag, { answered, now }, context);
      const reply = await client.complete(messages).catch((error) => {
        // As in training, an episode ends when its dialogue no longer fits into the context. A first prompt that does not fit is an error.
        const full = error instanceof HostedError && error.code === "context_length_exceeded";
        if (full && answered.length > 0) return null;
        throw error;
      });
      if (reply === null) return null;
      inputTokens += reply.inputTokens;
      outputTokens += reply.outputTokens;
      return { text: reply.text, cut: reply.cut, dropped: 0 };
    },
    turnPlayed({ reply, reward, actions }) {
      answered.push({ ...now, reply: shownReply(reply, { ...rules, compat: context.compat }), reward, actions });
    },
  };
  try {
    const played = await playTurns(ticket, player, {
      askEnv: (ask) => envs.answer(PLAYER, ask),
      closeEnv: ({ episode }) => envs.forget(PLAYER, episode),
    });
    return { index, layoutSeed: ticket.layoutSeed, ...played, inputTokens, outputTokens };
  } catch (error) {
    if (!(error instanceof EpisodeError)) throw error;
    throw new Error(`${ticket.episode} could not be played: ${error.message}`);
  }
}

/** Converts the episode to the form that `summary` reads. The trajectory has no tokens, because only the server knows the tokens. */
function playedTicket(ticket: Ticket, { stop, success, turns, finalObservation, extra }: HostedEpisode): PlayedTicket {
  const outcome: PlayedOutcome = {
    status: statusOf(stop),
    stop,
    success,
    finalObservation,
    extra,
    turns,
    trajectory: {
      tokens: new Int32Array(),
      written: new Uint8Array(),
      logProbs: new Float32Array(),
      contexts: [0],
      turns: turns.map(({ reward, penalty }) => ({ end: 0, reward, penalty })),
      version: 0,
      digest: "",
    },
  };
  return { ticket, sampler: PLAYER, outcome };
}
