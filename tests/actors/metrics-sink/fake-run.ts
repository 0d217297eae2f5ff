/**
 * A pretend training run: seeded curves, events and episodes, told to a real metrics sink over the messages that real
 * actors send. For tests of the sink and of the page. The run learns nothing.
 */

import type { PlayAnswer } from "../../../actors/dashboard/answers.ts";
import { type MetricName, metricValues } from "../../../actors/metrics/metrics.ts";
import type { MetricsSink } from "../../../actors/metrics-sink/metrics-sink.ts";
import type { ActorView, EpisodeRow, Outcome, Ticket } from "../../../actors/protocol.ts";
import type { Peer } from "../../../actors/transport/transport.ts";
import { aTicket, aTurn } from "../../fixtures.ts";

/** mulberry32: uniform in [0, 1). */
function uniformOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A peer of the sink that ignores every message. */
export const silentPeer: Peer = {
  name: "test",
  queuedBytes: 0,
  closed: false,
  tell() {},
  ask: () => Promise.reject(new Error("a sink asks nothing")),
  close() {},
};

const BOARDS = [
  "######\n#_P__#\n#_X__#\n#__O_#\n#____#\n######",
  "######\n#____#\n#_P__#\n#_XO_#\n#____#\n######",
  "######\n#____#\n#____#\n#_PX_#\n#__O_#\n######",
  "######\n#____#\n#____#\n#__P√#\n#____#\n######",
];

const BOARD = { env: "SimpleSokoban", layoutSeed: 10_000, dynamicsSeed: 7 };
export const ticketOf = (changes: Partial<Ticket> = {}): Ticket =>
  aTicket({ episode: "e1", version: 3, ...BOARD, ...changes });

/** A played episode of two turns; `text` replaces what the model thought. */
export function playedRow(changes: Partial<Ticket> = {}, success = true, text = "the box is right of me"): EpisodeRow {
  const ticket = ticketOf(changes);
  const outcome: Outcome = {
    status: "scored",
    stop: success ? "success" : "turns",
    success,
    trajectory: {
      tokens: Int32Array.of(1, 5, 9, 12, 4, 2),
      written: Uint8Array.of(0, 0, 1, 1, 0, 1),
      logProbs: Float32Array.of(0, 0, -0.5, -1.25, 0, -0.0625),
      contexts: [0],
      turns: [
        { end: 3, reward: -0.1, penalty: 0 },
        { end: 5, reward: success ? 10.9 : -0.1, penalty: success ? 0 : -0.1 },
      ],
      version: ticket.version,
      digest: "ab".repeat(32),
    },
    turns: [
      aTurn({
        observation: `You push boxes onto targets.\n${BOARDS[0]}\nYou have 10 actions left.`,
        reply: `<think>${text}</think><answer>Down || Left</answer>`,
        actions: ["Down", "Left"],
        reward: -0.1,
      }),
      success
        ? aTurn({
            observation: `${BOARDS[2]}\nYou have 8 actions left.`,
            reply: "<think>push it right</think><answer>Right</answer>",
            actions: ["Right"],
            reward: 10.9,
          })
        : aTurn({
            observation: `${BOARDS[1]}\nYou have 8 actions left.`,
            reply: "<think>up up up",
            actions: [],
            reward: -0.1,
            penalty: -0.1,
            wellFormed: false,
            effective: false,
            valid: false,
            cut: true,
          }),
    ],
    finalObservation: success ? BOARDS[3]! : BOARDS[1]!,
    extra: {},
  };
  return { ticket, sampler: "sampler/0", outcome, update: ticket.purpose === "train" ? 3 : null, advantage: 0.5 };
}

/** How the episodes of this file are played. */
export const play: PlayAnswer = {
  compat: "strict",
  envs: [
    {
      name: "SimpleSokoban",
      tag: "SimpleSokoban",
      options: {},
      symbols: { "#": "wall", _: "floor", O: "target", X: "box", P: "player", "√": "done", S: "player" },
      rules: { turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5, formatPenalty: -0.1, think: true },
    },
  ],
};

export const actorView = (name: string, changes: Partial<ActorView> = {}): ActorView => ({
  name,
  role: name.replace(/-\d+$/, "") as ActorView["role"],
  guest: false,
  pid: 4711,
  restarts: 0,
  url: null,
  silentMs: 200,
  doing: "working",
  lastMessage: "roster",
  rssBytes: 64 << 20,
  load: {},
  weights: null,
  ...changes,
});

export interface FakeRunOptions {
  readonly sink: MetricsSink;
  readonly seed: number;
}

export class FakeRun {
  readonly #sink: MetricsSink;
  readonly #uniform: () => number;
  #episodes = 0;

  constructor({ sink, seed }: FakeRunOptions) {
    this.#sink = sink;
    this.#uniform = uniformOf(seed);
  }

  metrics(step: number, values: Partial<Record<MetricName, number>>, actor = "learner"): void {
    this.#sink.told(silentPeer, { type: "metrics", actor, step, values: metricValues(values) });
  }

  event(kind: string, text: string, level: "info" | "warning" | "error" = "info", actor = "learner"): void {
    this.#sink.told(silentPeer, { type: "event", actor, level, kind, text });
  }

  /** Engine, baselines, and a warm start of two stages; `share` of the whole warm start is done. */
  warm(share: number, stepsMax = 400): void {
    this.event("engine", "compiled on cpu, 2 threads");
    this.metrics(0, { "baseline/random": 0.188, "baseline/best": 1 });
    const steps = Math.round(stepsMax * share);
    for (let step = 0; step <= steps; step += 4) {
      const [stage, progress] = step < stepsMax * 0.9 ? [1, step / (stepsMax * 0.9)] : [2, step / (stepsMax * 0.1) - 9];
      const loss = 0.18 + 2.4 * Math.exp(-step / 45) + 0.05 * this.#uniform();
      this.metrics(step, { "warm/stage": stage, "warm/progress": progress, "warm/loss": loss });
    }
    if (share < 1) return;
    this.event("phase", "warm start done: it was taught 0.74 and blurred to 0.21");
    this.metrics(0, { "baseline/taught": 0.742, "baseline/before": 0.211, "validate/success": 0.211 });
  }

  /** One update: the curves of a healthy run, with noise. */
  async update(step: number): Promise<void> {
    const noise = (scale: number) => scale * (this.#uniform() - 0.5);
    const skill = 0.21 + 0.68 * (1 - Math.exp(-step / 28));
    this.metrics(step, {
      "train/success": Math.min(1, Math.max(0, skill - 0.06 + noise(0.14))),
      "train/reward_mean": -1 + 10.5 * skill + noise(1.2),
      "train/in_group_std": 4.4 * Math.sqrt(skill * (1 - skill)) + 0.5 + noise(0.4),
      "train/entropy": 0.1 + 0.5 * Math.exp(-step / 35) + noise(0.03),
      "train/grad_norm": 0.35 + 0.9 * this.#uniform() ** 4 + 0.3 * Math.exp(-step / 20),
      "train/reply_tokens": 42 - 12 * (1 - Math.exp(-step / 40)) + noise(3),
      "train/think_tokens": 24 - 9 * (1 - Math.exp(-step / 40)) + noise(2),
      "train/format_errors": 0.08 * this.#uniform(),
      "train/effective": 0.9 + noise(0.1),
      "train/repetition": 0.1 * this.#uniform(),
      "collapse/mi_estimate": 2 + noise(0.4),
      "health/verdict": 0,
      "train/kept_groups": 0.25,
      "train/zero_std_groups": 0.3 + noise(0.1),
      "loss/ratio_kl": 0.001 * this.#uniform(),
      "loss/clip_fraction_high": 0.02 * this.#uniform(),
      "loss/clip_fraction_low": 0.01 * this.#uniform(),
      "speed/rollout_s": 1.2 + noise(0.2),
      "speed/update_s": 0.9 + noise(0.1),
      "speed/updates_per_minute": 11 + noise(1),
      "speed/tokens_per_second": 8200 + noise(1400),
      "total/updates": step,
      "total/episodes": step * 128,
      "total/tokens": step * 5000,
    });
    if (step % 10 === 0) this.metrics(step, { "validate/success": Math.min(0.94, skill + noise(0.05)) });
    if (step % 20 === 0) this.event("checkpoint", `saved update ${step}`);
    if (step === 37)
      this.event("exited", "sampler/1 was killed by signal 9; restarting, attempt 1 of 5", "warning", "supervisor");
    const rows = [0, 1, 2, 3].map((member) =>
      playedRow(
        { episode: `t${this.#episodes++}`, group: member >> 1, member, version: step },
        this.#uniform() < skill,
      ),
    );
    await this.episodes(rows.map((row) => ({ ...row, update: step })));
  }

  async episodes(rows: EpisodeRow[]): Promise<void> {
    const answer = await this.#sink.asked(silentPeer, { type: "episodes", rows });
    if (answer.type !== "episodes.stored")
      throw new Error(`the sink did not store episodes: ${JSON.stringify(answer)}`);
  }
}
