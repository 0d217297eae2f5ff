/**
 * A hosted model's episodes on fixed boards: the same envs, prompts and parsing as of any policy; text goes out and text comes
 * back. Nothing is learnt.
 *
 * - At most `requestsMax` episodes go on at once, each with one request under way.
 * - An episode that could not be played is an error, never a failure of the model. What had ended by then is kept.
 */

import { openEpisode } from "../../../envs/episode.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import { type AnsweredTurn, contextMessages } from "../../../envs/text/context.ts";
import type { Clock } from "../../clock.ts";
import type { RunConfig } from "../../config/config.ts";
import { type EnvAsk, EnvServer } from "../../env-server/env-server.ts";
import type { AnswerTo, PlayedOutcome, Ticket } from "../../protocol.ts";
import { type PlayedTicket, validationTickets } from "../../training/rollouts.ts";
import { type PolicyEvaluation, summary } from "../evaluate.ts";
import type { HostedClient } from "./client.ts";
import type { HostedEpisode, Results } from "./results.ts";

export interface HostedEvaluation {
  /** `env` and `prompt` say what is played and how it is told, `validate` which boards. */
  readonly config: RunConfig;
  readonly tag: EnvTag;
  readonly client: Pick<HostedClient, "complete" | "stop">;
  /** Boards in it are not played again. */
  readonly results: Results;
  readonly requestsMax: number;
  readonly clock: Clock;
  readonly warn: (text: string) => void;
  /** After each episode, those of earlier sessions included. */
  readonly progress?: (played: number, solved: number) => void;
}

/** Whom the env server's episodes belong to. */
const PLAYER = "eval";

/** @throws {Error} the first that kept an episode from being played, when those under way have ended. */
export async function evaluateHosted(options: HostedEvaluation): Promise<PolicyEvaluation> {
  const { config, tag, client, results, requestsMax, clock, warn, progress } = options;
  const tickets = validationTickets(config, "hosted", 0, 0);
  const { idleMs, answerMsMax } = config.envServer;
  const envs = new EnvServer({
    find: () => (seeds) => openEpisode(tag.open(seeds), config.env),
    episodesMax: requestsMax,
    idleMs,
    answerMsMax,
    clock,
    warn,
  });
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
  { episode, env, layoutSeed, dynamicsSeed }: Ticket,
  { config, tag, client }: HostedEvaluation,
  envs: EnvServer,
): Promise<HostedEpisode> {
  const { prompt, env: rules } = config;
  const said = {
    layout: prompt.layout,
    compat: prompt.compat !== "strict",
    think: rules.think,
    mode: prompt.context,
    window: prompt.contextTurnsMax ?? -1,
  };
  const answered: AnsweredTurn[] = [];
  const turns: HostedEpisode["turns"] = [];
  const extra: Record<string, number> = {};
  let [inputTokens, outputTokens] = [0, 0];
  try {
    const opened = await ask(envs, { type: "env.open", episode, env, layoutSeed, dynamicsSeed });
    let now = { observation: opened.observation, actionsLeft: opened.actionsLeft };
    for (let turn = 0; ; turn++) {
      const reply = await client.complete(contextMessages(tag, { answered, now }, said));
      inputTokens += reply.inputTokens;
      outputTokens += reply.outputTokens;
      const stepped = await ask(envs, { type: "env.step", episode, turn, reply: reply.text });
      const { actions, reward, penalty, wellFormed, effective, valid, ending, success } = stepped;
      turns.push({
        observation: now.observation,
        reply: reply.text,
        cut: reply.cut,
        actions,
        reward,
        penalty,
        wellFormed,
        effective,
        valid,
      });
      for (const [name, value] of Object.entries(stepped.extra)) extra[name] = (extra[name] ?? 0) + value;
      answered.push({ ...now, reply: reply.text, reward, actions });
      now = { observation: stepped.observation, actionsLeft: stepped.actionsLeft };
      if (ending === null) continue;
      const played = { turns, finalObservation: stepped.observation, extra, inputTokens, outputTokens };
      return { index, layoutSeed, stop: ending, success, ...played };
    }
  } finally {
    envs.forget(PLAYER, episode);
  }
}

/** @throws {Error} saying what the env did instead of answering. */
async function ask<A extends EnvAsk>(envs: EnvServer, asked: A) {
  const answer = await envs.answer(PLAYER, asked);
  if (answer.type === "failed") throw new Error(`${asked.episode} could not be played: ${answer.detail}`);
  return answer as Exclude<AnswerTo<A>, { type: "failed" }>;
}

/** As the metrics of rollouts take it: without tokens, which only the server knows. */
function playedTicket(ticket: Ticket, { stop, success, turns, finalObservation, extra }: HostedEpisode): PlayedTicket {
  const outcome: PlayedOutcome = {
    status: stop === "success" || stop === "over" ? "scored" : "truncated",
    stop,
    success,
    finalObservation,
    extra,
    turns: turns.map((turn) => ({ ...turn, dropped: 0 })),
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
