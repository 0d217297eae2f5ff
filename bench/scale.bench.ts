/**
 * How many samplers one learner serves, over sockets and over NATS. The samplers have no model and share one process; the learner
 * and the broker are processes of their own on this machine.
 *
 * - Paced: an episode takes about a second. Latency is the time from the end of an episode to the learner's answer. Budget: the median
 *   latency at 1,000 samplers is at most twice that at 10, and memory grows at most linearly.
 * - Flat out: an episode takes no time. The throughput is then the most that the learner can serve.
 */
import { join } from "node:path";
import { linesOf } from "../actors/process/lines.ts";
import { NO_BROKER, natsServer, startBroker } from "./broker.ts";
import { type Comparison, numbersOf, round } from "./shared.ts";

export const summary =
  "tickets and trajectories per second, latency and memory for 10 to 1,000 samplers, over sockets and NATS";

const SECONDS = 4;
const COUNTS = [10, 100, 1000];
const PACED_MS = 1000;

interface Row {
  readonly transport: string;
  readonly samplers: number;
  readonly paced: boolean;
  readonly ticketsPerSecond: number;
  readonly trajectoriesPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly joinMs: number;
  /** Memory that each sampler adds to the learner. */
  readonly learnerBytesPerSampler: number;
  readonly brokerBytesPerSampler: number | null;
  readonly samplerBytes: number;
}

/** The last line of scale-samplers.ts. */
type SamplersResult = Pick<Row, "ticketsPerSecond" | "trajectoriesPerSecond" | "p50Ms" | "p99Ms" | "joinMs"> & {
  rssBytes: number;
};

export async function run(options: Readonly<Record<string, string>>) {
  const { seconds } = numbersOf("scale", { seconds: SECONDS }, options, ["samplers"]);
  const counts = countsOf(options["samplers"]);
  if (natsServer === null) console.log(NO_BROKER);
  const rows: Row[] = [];
  for (const transport of natsServer === null ? ["socket"] : ["socket", "nats"]) {
    for (const paced of [true, false]) {
      for (const samplers of counts) {
        const row = await measure(transport, samplers, paced, seconds);
        rows.push(row);
        console.log(
          `${transport.padEnd(6)} ${String(samplers).padStart(5)} ${paced ? "paced   " : "flat out"}  ${row.trajectoriesPerSecond} trajectories/s · ` +
            `p50 ${row.p50Ms} ms · p99 ${row.p99Ms} ms · learner ${kib(row.learnerBytesPerSampler)} KiB a sampler` +
            `${row.brokerBytesPerSampler === null ? "" : ` · broker ${kib(row.brokerBytesPerSampler)} KiB`}`,
        );
      }
    }
  }
  return { name: "scale", comparisons: latencies(rows), seconds, rows };
}

/** The numbers of samplers in "10,100". @throws {RangeError} naming the option */
function countsOf(text: string | undefined): readonly number[] {
  if (text === undefined) return COUNTS;
  const counts = text.split(",").map(Number);
  if (counts.every((count) => Number.isInteger(count) && count >= 1)) return counts;
  throw new RangeError(`scale.samplers must be whole numbers of at least 1, separated by commas, got "${text}"`);
}

/** For each transport, the median latency with the most samplers, compared with that with the fewest. */
function latencies(rows: readonly Row[]): Comparison[] {
  const paced = rows.filter((row) => row.paced);
  return [...new Set(paced.map((row) => row.transport))].map((transport) => {
    const own = paced.filter((row) => row.transport === transport);
    const [few, many] = [own[0]!, own.at(-1)!];
    return {
      what: `p50 of an episode's answer, ${many.samplers} samplers, ${transport}`,
      ours: `${many.p50Ms} ms`,
      reference: `${few.samplers} samplers ${few.p50Ms} ms`,
      speed: round(few.p50Ms / many.p50Ms, 2),
      goal: 0.5,
    };
  });
}

const kib = (bytes: number) => Math.round(bytes / 1024);

async function measure(transport: string, samplers: number, paced: boolean, seconds: number): Promise<Row> {
  await using ends = new AsyncDisposableStack();
  const nats = transport === "nats" ? await startBroker() : null;
  if (nats !== null) ends.defer(() => nats.end());
  const learner = start(ends, "scale-learner.ts", [nats === null ? "ws://127.0.0.1:0" : nats.address]);
  const address = await learner.line();
  const empty = { learner: await learner.answer(), broker: nats === null ? 0 : rssOf(nats.pid) };
  const child = start(ends, "scale-samplers.ts", [address, samplers, paced ? PACED_MS : 0, seconds].map(String));
  const { rssBytes, ...result } = JSON.parse(await child.line()) as SamplersResult;
  const perSampler = (now: number, before: number) => Math.round((now - before) / samplers);
  return {
    transport,
    samplers,
    paced,
    ...result,
    learnerBytesPerSampler: perSampler(await learner.answer(), empty.learner),
    brokerBytesPerSampler: nats === null ? null : perSampler(rssOf(nats.pid), empty.broker),
    samplerBytes: Math.round(rssBytes / samplers),
  };
}

function start(ends: AsyncDisposableStack, file: string, args: readonly string[]) {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, file), ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  ends.defer(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  const lines = linesOf(child.stdout);
  async function line(): Promise<string> {
    const { value, done } = await lines.next();
    if (done) throw new Error(`${file} ended`);
    return value;
  }
  return {
    line,
    async answer(): Promise<number> {
      child.stdin.write("\n");
      child.stdin.flush();
      return Number(await line());
    },
  };
}

/** Resident memory of another process in bytes. */
function rssOf(pid: number): number {
  const { stdout } = Bun.spawnSync(["ps", "-o", "rss=", "-p", String(pid)]);
  return Number(stdout.toString()) * 1024;
}
