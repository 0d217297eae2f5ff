/**
 * Time from `publish` of new weights to the last acknowledgement of 4 samplers on this host, by stage. Each sampler is a process
 * that maps the bytes and checks their seal (actors/weights/seal.ts).
 * Run: bun run bench weights [--weights.megabytes=100]
 *
 * Budget: the built-in policy (2 MB) under 50 ms; 100 MB and more within twice the time of a copy and one hash, measured alternately.
 * A sampler of another host: at least half the speed of a bare TCP copy with a hash (weights-remote.ts).
 * `fiveHashesMs` is the shortest time in which the learner and 4 samplers could each compute the sha256 on the cores of this machine.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { realClock } from "../actors/clock.ts";
import { welcoming } from "../actors/transport/handshake.ts";
import { SocketTransport } from "../actors/transport/socket.ts";
import type { Peer } from "../actors/transport/transport.ts";
import { Acks } from "../actors/weights/acks.ts";
import { sweep, weightsFolder } from "../actors/weights/files.ts";
import { WeightsPublisher } from "../actors/weights/publisher.ts";
import { median } from "../model/statistics.ts";
import { type Comparison, numbersOf, round } from "./shared.ts";
import { type RemoteRow, remoteRow } from "./weights-remote.ts";

export const summary =
  "time from publish to the last acknowledgement of 4 samplers, compared with a copy and one hash of the same bytes";

const SAMPLERS = 4;
/** Number of versions of this size to measure. */
const roundsOf = (megabytes: number): number => (megabytes < 10 ? 41 : megabytes < 1000 ? 7 : 3);
const MEGABYTE = 1_000_000;
/** The first size is that of the built-in policy. */
const SIZES = [2, 4, 100, 1000];

interface Row {
  readonly megabytes: number;
  /** Time from `publish` to the last acknowledgement. */
  readonly ms: number;
  /** Time of a copy into memory that is mapped already, and of one hash. */
  readonly referenceMs: number;
  /** Time of the same copy and hash with new memory. The system must map new memory page by page, like a file. */
  readonly freshReferenceMs: number;
  readonly ratio: number;
  readonly freshRatio: number;
  readonly fiveHashesMs: number;
  readonly stagesMs: Readonly<Record<Stage, number>>;
}

/** Moments of one version as the learner sees them, in this order. */
const STAGES = ["published", "announced", "first", "last"] as const;
type Stage = (typeof STAGES)[number];

export async function run(options: Readonly<Record<string, string>>) {
  const { megabytes } = numbersOf("weights", { megabytes: SIZES[0]! }, options);
  const sizes = "megabytes" in options ? [megabytes] : SIZES;
  const bench = await SamplerBench.open();
  try {
    const rows: Row[] = [];
    const remote: RemoteRow[] = [];
    for (const size of sizes) {
      const row = await bench.measure(size);
      rows.push(row);
      const { ms, referenceMs, ratio, freshReferenceMs, freshRatio, fiveHashesMs, stagesMs: at } = row;
      console.log(
        `${size} MB: ${ms} ms; copy + hash ${referenceMs} ms (x ${ratio}); ` +
          `into new memory ${freshReferenceMs} ms (x ${freshRatio}); five hashes ${fiveHashesMs} ms`,
      );
      console.log(
        `  written and hashed after ${at.published} ms, announced ${at.announced}, acknowledged first ${at.first}, last ${at.last}`,
      );
      const pulled = await bench.pull();
      remote.push(pulled);
      console.log(
        `  to another host: ${pulled.httpMs} ms, through the gate ${pulled.gateMs} ms; bare TCP with a hash ${pulled.tcpMs} ms ` +
          `(${pulled.ofTcp} of its speed)`,
      );
    }
    const comparisons = [
      ...rows.map(
        ({ megabytes, ms, referenceMs }): Comparison => ({
          what: `weights of ${megabytes} MB to ${SAMPLERS} samplers`,
          ours: `${ms} ms`,
          reference: `a copy and one hash ${referenceMs} ms`,
          speed: round(referenceMs / ms, 2),
          goal: 0.5,
        }),
      ),
      ...remote.map(
        ({ megabytes, httpMs, gateMs, tcpMs, ofTcp }): Comparison => ({
          what: `weights of ${megabytes} MB to another host`,
          ours: `${Math.max(httpMs, gateMs)} ms`,
          reference: `bare TCP with a hash ${tcpMs} ms`,
          speed: ofTcp,
          goal: 0.5,
        }),
      ),
    ];
    return { name: "weights", comparisons, builtInMs: rows[0]!.ms, cores: availableParallelism(), rows, remote };
  } finally {
    await bench.close();
  }
}

/** A learner without a policy, and its samplers. */
class SamplerBench {
  readonly #folder: string;
  readonly #publisher: WeightsPublisher;
  readonly #acks = new Acks();
  readonly #peers = new Set<Peer>();
  readonly #children: ReturnType<typeof Bun.spawn>[] = [];
  /** The time of each acknowledgement of the newest version. */
  readonly #acknowledged: number[] = [];
  #closeListener = async () => {};
  #version = 0;

  private constructor(folder: string) {
    this.#folder = folder;
    const shared = weightsFolder(folder, (text) => console.log(text));
    sweep(shared);
    this.#publisher = new WeightsPublisher({ folder: shared, run: "bench", nameless: true });
  }

  static async open(): Promise<SamplerBench> {
    const bench = new SamplerBench(await mkdtemp(join(tmpdir(), "bunraku-weights-bench-")));
    await bench.#start();
    return bench;
  }

  async #start(): Promise<void> {
    const token = crypto.randomUUID();
    const limits = { clock: realClock, token, frameBytesMax: 1 << 16, queuedBytesMax: 1 << 20 };
    const { promise: complete, resolve } = Promise.withResolvers<void>();
    const handler = welcoming("bench", {
      joined: (peer, { actor }) => {
        this.#acks.join(actor);
        this.#peers.add(peer);
        if (this.#peers.size === SAMPLERS) resolve();
      },
      told: (_, message, { actor }) => {
        if (message.type !== "weights.loaded") throw new TypeError(`not expected: ${message.type}`);
        this.#acknowledged.push(performance.now());
        if (!this.#acks.loaded(actor, message.version, message.digest)) throw new Error(`${actor} holds other bytes`);
      },
      asked: () => ({ type: "failed", code: "protocol", detail: "the learner of this bench answers no asks" }),
    });
    const listener = await new SocketTransport(limits).listen("ws://127.0.0.1:0", handler);
    this.#closeListener = () => listener.close();
    for (let i = 0; i < SAMPLERS; i++) {
      const script = join(import.meta.dir, "weights-loader.ts");
      const command = [process.execPath, script, listener.address, `sampler/${i}`];
      this.#children.push(Bun.spawn(command, { stdio: [new Blob([token]), "inherit", "inherit"] }));
    }
    await complete;
    // The learner has not answered the last sampler's hello yet. Making a gigabyte of values would delay the answer.
    await new Promise((next) => setImmediate(next));
  }

  /** Medians over rounds. In each round, both sides work on the same bytes. */
  async measure(megabytes: number): Promise<Row> {
    const values = new Float32Array((megabytes * MEGABYTE) / 4).map((_, i) => Math.sin(i));
    const bytes = new Uint8Array(values.buffer);
    const target = new Uint8Array(bytes.length).fill(1);
    const rounds: { copy: number; freshCopy: number; hash: number; ours: Record<Stage, number> }[] = [];
    for (let turn = 0; turn <= roundsOf(megabytes); turn++) {
      const copy = timed(() => target.set(bytes));
      const freshCopy = timed(() => void bytes.slice());
      const hash = timed(() => void new Bun.CryptoHasher("sha256").update(bytes).digest());
      const ours = await this.#publish(values);
      // The first round warms the code of both sides.
      if (turn > 0) rounds.push({ copy, freshCopy, hash, ours });
    }
    const medianOf = (of: (one: (typeof rounds)[0]) => number) => median(rounds.map(of));
    const [ms, hash] = [medianOf(({ ours }) => ours.last), medianOf(({ hash }) => hash)];
    const reference = hash + medianOf(({ copy }) => copy);
    const freshReference = hash + medianOf(({ freshCopy }) => freshCopy);
    const stagesMs = STAGES.map((stage) => [stage, round(medianOf(({ ours }) => ours[stage]))]);
    return {
      stagesMs: Object.fromEntries(stagesMs) as Record<Stage, number>,
      megabytes,
      ms: round(ms),
      referenceMs: round(reference),
      freshReferenceMs: round(freshReference),
      ratio: round(ms / reference, 2),
      freshRatio: round(ms / freshReference, 2),
      fiveHashesMs: round((hash * (SAMPLERS + 1)) / Math.min(SAMPLERS + 1, availableParallelism())),
    };
  }

  /** Measures how another host gets the newest version. */
  pull(): Promise<RemoteRow> {
    return remoteRow(this.#publisher, this.#version - 1);
  }

  /** @returns the time at the end of each stage, in milliseconds */
  async #publish(values: Float32Array): Promise<Record<Stage, number>> {
    this.#acknowledged.length = 0;
    const started = performance.now();
    const message = await this.#publisher.publish(this.#version++, values);
    const published = performance.now();
    this.#acks.expect(message.version, message.digest);
    const everyone = this.#acks.everyone(message.version);
    for (const peer of this.#peers) peer.tell(message);
    const announced = performance.now();
    await everyone;
    const last = performance.now();
    const moments = { published, announced, first: this.#acknowledged[0]!, last };
    return Object.fromEntries(Object.entries(moments).map(([stage, at]) => [stage, at - started])) as typeof moments;
  }

  async close(): Promise<void> {
    await this.#closeListener();
    for (const child of this.#children) child.kill("SIGKILL");
    this.#publisher.close();
    await rm(this.#folder, { recursive: true });
  }
}

function timed(run: () => void): number {
  const started = performance.now();
  run();
  return performance.now() - started;
}
