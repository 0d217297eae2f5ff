/** Episodes that were really played: a scripted player's replies on a real env, in the built-in policy's tokens. */
import type { EpisodeRow, Ticket } from "../../../actors/protocol.ts";
import type { LocalEnv } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import { Pcg64 } from "../../../envs/rng/pcg64.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { play, ticketOf } from "../metrics-sink/fake-run.ts";

export interface Recording {
  /** Share of the player's turns that are random. */
  readonly babble: number;
  readonly ticket?: Partial<Ticket>;
  /** Options of the tag. */
  readonly options?: Record<string, unknown>;
}

const dialogue = builtinDialogue();

/** Equal recordings give equal rows. */
export function recordedRow({ babble, ticket: changes = {}, options = {} }: Recording): EpisodeRow {
  const ticket = ticketOf(changes);
  const tag = envTag(ticket.env, options);
  const game = tag.open({ layout: ticket.layoutSeed, dynamics: ticket.dynamicsSeed });
  if (game.kind === "outside" || tag.demonstrator === null)
    throw new Error(`${ticket.env} has no scripted player here`);
  const env = openEpisode(game, play.envs[0]!.rules) as LocalEnv;
  const coins = new Pcg64(ticket.layoutSeed, ticket.version + 10);
  const uniform = () => coins.random();
  const tokens: number[] = [];
  const written: number[] = [];
  const logProbs: number[] = [];
  const spans: { end: number; reward: number; penalty: number }[] = [];
  const turns = [];
  let observation = env.opening;
  for (let first = true; ; first = false) {
    const reply = tag.demonstrator.reply(game, env.actionsLeft, { babble, noise: 0 }, uniform);
    const prompt = dialogue.promptTokens([{ role: "user", content: observation }], { first, prefix: "<think>" });
    const said = dialogue.replyTokens(reply, "<think>");
    tokens.push(...prompt, ...said);
    written.push(...prompt.map(() => 0), ...said.map(() => 1));
    logProbs.push(...prompt.map(() => 0), ...said.map(() => -(uniform() ** 4) * 4));
    const turn = env.step(reply);
    const { reward, penalty, wellFormed, effective, valid } = turn;
    spans.push({ end: tokens.length - 1, reward, penalty });
    const actions = [...turn.actions];
    turns.push({ observation, reply, actions, reward, penalty, wellFormed, effective, valid, cut: false, dropped: 0 });
    observation = turn.observation;
    if (turn.ending === null) continue;
    const trajectory = {
      tokens: Int32Array.from(tokens),
      written: Uint8Array.from(written),
      logProbs: Float32Array.from(logProbs),
      contexts: [0],
      turns: spans,
      version: ticket.version,
      digest: "ab".repeat(32),
    };
    const status = turn.success || turn.ending === "over" ? "scored" : "truncated";
    const played = { status, stop: turn.ending, success: turn.success, trajectory } as const;
    const outcome = { ...played, turns, finalObservation: observation, extra: {} };
    const advantage = turn.success ? 0.9 : -1.1;
    return { ticket, sampler: "sampler-0", outcome, update: ticket.purpose === "train" ? 3 : null, advantage };
  }
}
