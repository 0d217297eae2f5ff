/**
 * The same training in Bunraku and in a loop written with PyTorch and transformers (peers/train.py): Dr. GRPO with AdamW on
 * SimpleSokoban, from the same weights, with the same number of threads. Run: bun run bench run [--run.seeds=3 --run.updates=60 …]
 * Goal: a fifth of the loop's time. If success at the end is equal within the intervals, both sides do the same work.
 * With --run.precision=half, both sides round: Bunraku has sampler.precision half and engine.bfloat16Products all, and PyTorch runs
 * under autocast.
 *
 * Both times include the validation before the first update and the validation after the last update. Bunraku's time includes its
 * checkpoints and a second validation at the end, at temperature 1.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { valuesByPath } from "../actors/config/layers.ts";
import { meanOf } from "../model/interval.ts";
import { type Comparison, checkPython, flagsOf, numbersOf, output, pythonOf, round, runPeer } from "./shared.ts";

export const summary =
  "the same training in Bunraku and in PyTorch with transformers: its time, and success at the end";

const DEFAULTS = { seeds: 3, updates: 60, groups: 16, groupSize: 8, imitationSteps: 300, threads: 2 };

const LEARNER = {
  algorithm: "dr-grpo",
  optimizer: "adamw",
  learningRate: 1e-4,
  decay: "none",
  entropyCoefficient: 0,
  filter: { strategy: "top_ratio", value: 0.5 },
};

interface Outcome {
  readonly seconds: number;
  readonly before: number;
  readonly after: number;
}

export async function run(options: Readonly<Record<string, string>>) {
  const { precision = "full" } = options;
  if (precision !== "full" && precision !== "half")
    throw new RangeError(`run.precision must be full or half, got "${precision}"`);
  const half = precision === "half";
  const numbers = numbersOf("run", DEFAULTS, options, ["python", "precision"]);
  const python = pythonOf(options);
  await checkPython(python, ["torch", "numpy", "transformers"]);
  const folder = await mkdtemp(join(tmpdir(), "bunraku-run-"));
  try {
    const policy = join(folder, "policy");
    const boards = join(folder, "boards.json");
    const start = await taught(folder, numbers.imitationSteps);
    await bunraku(["export", "--policy", start, "--to", "hf", "--out", policy]);
    await Bun.write(boards, await output([process.execPath, join(import.meta.dir, "peers", "boards.ts")]));
    const ours: Outcome[] = [];
    const peers: Outcome[] = [];
    for (let seed = 1; seed <= numbers.seeds; seed++) {
      ours.push(await train(start, join(folder, `run-${seed}`), seed, half, numbers));
      const { updates, groups, groupSize, threads } = numbers;
      const given = { policy, boards, seed, updates, groups, "group-size": groupSize, threads };
      peers.push(await runPeer<Outcome>(python, "train.py", flagsOf(given).concat(half ? "--bfloat16" : [])));
      console.log(
        `seed ${seed}: ours ${outcomeText(ours.at(-1)!)}; PyTorch and transformers ${outcomeText(peers.at(-1)!)}`,
      );
    }
    const [our, peer] = [meansOf(ours), meansOf(peers)];
    const comparison: Comparison = {
      what: `run, ${numbers.updates} updates of ${numbers.groups * numbers.groupSize} episodes${half ? ", half precision" : ""}`,
      ours: `${round(our.seconds.mean)} s`,
      reference: `PyTorch, transformers ${round(peer.seconds.mean)} s`,
      speed: round(peer.seconds.mean / our.seconds.mean, 2),
      goal: 5,
    };
    return { name: "run", comparisons: [comparison], ours: our, peer };
  } finally {
    await rm(folder, { recursive: true });
  }
}

const meansOf = (outcomes: readonly Outcome[]) => ({
  seconds: meanOf(outcomes.map(({ seconds }) => seconds)),
  after: meanOf(outcomes.map(({ after }) => after)),
});

const outcomeText = ({ seconds, before, after }: Outcome) =>
  `${round(seconds)} s, success ${round(100 * before)} % before and ${round(100 * after)} % after`;

/** Trains a policy with only a few steps of imitation, so that reinforcement can improve the policy a lot. @returns the policy's run */
async function taught(folder: string, steps: number): Promise<string> {
  const run = join(folder, "start");
  const stages = JSON.stringify([{ name: "learn", steps, learningRate: 2e-3 }]);
  // One update, with a learning rate so small that weights change by no more than rounding.
  await cluster(["--run-dir", run, `--warmStart.stages=${stages}`, "--updates", "1", "--learner.learningRate=1e-12"]);
  return run;
}

async function train(start: string, run: string, seed: number, half: boolean, numbers: typeof DEFAULTS) {
  const { updates, groups, groupSize, threads } = numbers;
  const settings = {
    learner: { ...LEARNER, updates, minibatch: groups * groupSize },
    rollout: { groups, groupSize },
    engine: half ? { threads, device: "cpu", bfloat16Products: "all" } : { threads },
    sampler: { count: threads, precision: half ? "half" : "full" },
    validate: { everyUpdates: updates },
    seed,
  };
  const keys = valuesByPath(settings).map(([path, value]) => `--${path}=${value}`);
  const report = await cluster(["--from", start, "--run-dir", run].concat(keys));
  const { before, after } = report.success;
  return { seconds: report.minutes * 60, before, after } satisfies Outcome;
}

interface Report {
  readonly minutes: number;
  readonly success: { readonly before: number; readonly after: number };
}

const cluster = async (args: readonly string[]): Promise<Report> =>
  JSON.parse(await bunraku(["cluster", "--port", "0", "--quiet", "--json"].concat(args))) as Report;

/** Runs a command of Bunraku. @returns the last line of its standard output */
async function bunraku(args: readonly string[]): Promise<string> {
  const text = await output([process.execPath, join(import.meta.dir, "..", "scripts", "run.ts"), ...args]);
  return text.trim().split("\n").at(-1)!;
}
