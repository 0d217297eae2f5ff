/**
 * Time of one training step: forward, backward, clip and AdamW of the reference model, float32, on 2 threads, compared with
 * PyTorch on the same weights and data. Run: bun run bench step [--step.layers=6 --step.d=512 …]
 * Goal: 1.3 times as fast as the faster of PyTorch's eager variants (one has SDPA). The two sides alternate, because a shared
 * machine changes its speed by the minute. Equal first losses prove that both do the same work.
 *
 * With --step.bfloat16Products=gradients or all, Bunraku rounds the factors of these products, and PyTorch runs under autocast too, which
 * rounds the factors of all products. Autocast's losses are not compared.
 *
 * With a rank, both sides train adapters of that rank, and the embedding is tied. This command measures the shape of Qwen2.5-0.5B, for which
 * each side needs less than 20 GB:
 * bun run bench step --step.rank=64 --step.d=896 --step.layers=24 --step.heads=14 --step.kvHeads=2 --step.hidden=4864
 *   --step.vocabulary=151936 --step.batch=2 --step.length=512 --step.microBatchTokens=1024 --step.rounds=1 --step.steps=1
 */
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import { huggingFaceViews } from "../model/checkpoint/hugging-face.ts";
import { safetensorsParts, writeSafetensors } from "../model/checkpoint/safetensors.ts";
import { type CompiledOptions, compiledEngine } from "../model/engine/compiled.ts";
import type { Device } from "../model/engine/engine.ts";
import type { Bfloat16Products } from "../model/engine/trace.ts";
import { MICRO_TOKENS_MAX } from "../model/learn/batch.ts";
import { Network } from "../model/learn/network.ts";
import type { Objective } from "../model/learn/objective.ts";
import { LORA_TARGETS } from "../model/policy/lora.ts";
import { baseOf, type ModelConfig } from "../model/policy/model-config.ts";
import { initialize, layFrozen, layParameters, type Parameters } from "../model/policy/parameters.ts";
import { sequence } from "../model/rng.ts";
import { median } from "../model/statistics.ts";
import {
  type Comparison,
  checkPython,
  ENGINE_OPTIONS,
  engineOf,
  flagsOf,
  numbersOf,
  peerArguments,
  peerDevice,
  pythonOf,
  REFERENCE,
  referenceModel,
  round,
  roundingInWords,
  runPeer,
} from "./shared.ts";

export const summary = "one training step of the reference model, compared with PyTorch eager, SDPA and compiled";

const DEFAULTS = {
  ...REFERENCE,
  batch: 16,
  length: 256,
  threads: 2,
  rounds: 5,
  steps: 6,
  // The limit of a run, so that this bench measures a run's step. Both sides do equal work with every limit: PyTorch computes the batch at once.
  // A run takes up to 512 tokens (MICRO_TOKENS_MAX), because larger prefix trees share more tokens. The rows of this benchmark share nothing, and
  // at d 512 their step takes 12 % longer with 512 tokens.
  microBatchTokens: 256,
  rank: 0,
};
type Numbers = { readonly [K in keyof typeof DEFAULTS]: number };

/** The same settings as in bench/peers/step.py. */
const ADAMW = { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 };
const LOSSES_COMPARED = 3;
const LOSS_TOLERANCE = 1e-4;
/** Rounded gradients change the loss after the first step, and a rounded forward pass changes the first loss too. */
const ROUNDED_LOSS_TOLERANCE = 5e-3;

/** Policy gradient: the input holds the weight of each written token. */
const OBJECTIVE = {
  head: "tokens",
  name: "reference loss",
  inputs: ["weights"],
  loss: ({ logProbs }, { weights }) => ({ loss: tf.neg(tf.sum(tf.mul(logProbs, weights!))) as tf.Scalar, metrics: {} }),
} satisfies Objective;

interface PeerReport {
  readonly torch: string;
  readonly ms: Readonly<Record<string, number>>;
  readonly losses: Readonly<Record<string, readonly number[]>>;
  readonly peakBytes: number;
  /** The step's matrix products alone; null with adapters. */
  readonly productsMs: number | null;
}

export async function run(options: Readonly<Record<string, string>>) {
  const engine = engineOf(options);
  const defaults = engine.device === "cpu" ? DEFAULTS : { ...DEFAULTS, microBatchTokens: MICRO_TOKENS_MAX.gpu };
  const numbers = numbersOf("step", defaults, options, ENGINE_OPTIONS);
  const python = pythonOf(options);
  await checkPython(python, ["torch", "numpy", "safetensors"]);
  const folder = await mkdtemp(join(tmpdir(), "bunraku-step-"));
  try {
    return await compare(numbers, { threads: numbers.threads, ...engine }, python, folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function compare(numbers: Numbers, engine: CompiledOptions & { device: Device }, python: string, folder: string) {
  const model = makeModel(numbers);
  const data = makeData(numbers);
  const weightsFile = join(folder, "weights.safetensors");
  const dataFile = join(folder, "data.safetensors");
  await writeWeights(weightsFile, model);
  await Bun.write(dataFile, writeSafetensors(data));
  const { batch, length, threads, steps, rank } = numbers;
  const work = { batch, seq: length, weights: weightsFile, data: dataFile, lr: ADAMW.learningRate };
  const fixed = [
    ...peerArguments(numbers),
    ...flagsOf(work),
    ...flagsOf({ threads, steps, rank }),
    ...peerDevice(engine.device),
  ];
  const peer = (variants: string) => runPeer<PeerReport>(python, "step.py", [...fixed, ...flagsOf({ variants })]);
  // Each variant has a model of its own. With adapters, this bench also measures memory, so only one variant runs.
  const variants = rank > 0 ? "eagerSdpa" : "eager,eagerSdpa";
  const { bfloat16Products = "none" } = engine;
  const rounds = bfloat16Products !== "none";
  const slow = rounds ? "compiledSdpa,bfloat16Sdpa,compiledBfloat16Sdpa" : "compiledSdpa";

  const step = await bunrakuStep(numbers, engine, model, data);
  const { losses } = await repeated(step, LOSSES_COMPARED);
  await repeated(step, steps);
  let peerBytes = 0;
  const turns: { ms: number; eager: number; productsMs: number | null; once: Record<string, number> }[] = [];
  for (let turn = 0; turn < numbers.rounds; turn++) {
    const { ms: before } = await repeated(step, steps);
    const report = await peer(turn === 0 && rank === 0 ? `${variants},${slow}` : variants);
    const { ms: after } = await repeated(step, steps);
    compareLosses(losses, report, bfloat16Products);
    const { eager, eagerSdpa, ...once } = report.ms;
    peerBytes = Math.max(peerBytes, report.peakBytes);
    turns.push({
      ms: (before + after) / 2,
      eager: Math.min(eager ?? Number.POSITIVE_INFINITY, eagerSdpa!),
      productsMs: report.productsMs,
      once,
    });
    const theirs = Object.entries(report.ms).map(([variant, ms]) => `${variant} ${round(ms)}`);
    console.log(
      `turn ${turn + 1}: ours ${round(before)} and ${round(after)} ms; torch ${report.torch} ${theirs.join(", ")} ms`,
    );
  }
  const ms = median(turns.map((turn) => turn.ms));
  const peerMs = round(median(turns.map((turn) => turn.eager)));
  // A ratio for each round, because the machine has about the same speed for both sides within a round.
  const ratio = round(median(turns.map((turn) => turn.eager / turn.ms)), 2);
  // With adapters the peer compiles nothing and times no products alone.
  const { once: onceMs, ms: firstMs } = turns[0]!;
  const { compiledSdpa: compiledMs, ...rounded } = onceMs;
  const compiled =
    rank > 0 ? null : { compiledPeerMs: round(compiledMs!), compiledRatio: round(compiledMs! / firstMs, 2) };
  const products =
    rank > 0
      ? null
      : {
          productsMs: round(median(turns.map((turn) => turn.productsMs!))),
          productShare: round(median(turns.map((turn) => turn.productsMs! / turn.ms)), 2),
        };
  const { d, layers } = numbers;
  const kind = `${rank === 0 ? "" : `, rank ${rank}`}${roundingInWords(bfloat16Products)}`;
  const what = `step, d ${d}, ${layers} layers, ${batch} × ${length} tokens${kind}`;
  const comparison = (peer: string, speed: number, goal: number): Comparison => {
    return { what, ours: `${round(ms)} ms`, reference: peer, speed, goal };
  };
  const comparisons = [comparison(`PyTorch eager ${peerMs} ms`, ratio, 1.3)];
  if (compiled !== null) {
    comparisons.push(comparison(`torch.compile ${compiled.compiledPeerMs} ms`, compiled.compiledRatio, 1.2));
  }
  if (rounds && rank === 0) {
    const [variant, fastest] = Object.entries(rounded).reduce((a, b) => (b[1] < a[1] ? b : a));
    comparisons.push(comparison(`PyTorch autocast, ${variant} ${round(fastest)} ms`, round(fastest / firstMs, 2), 1.2));
  }
  if (products !== null) {
    const { productsMs, productShare } = products;
    comparisons.push(comparison(`its products alone, PyTorch ${productsMs} ms`, productShare, 0.75));
  }
  return {
    name: "step",
    comparisons,
    ms: round(ms),
    peerMs,
    ratio,
    ...compiled,
    ...products,
    // The peer's peak includes a model for each of its variants.
    peakGigabytes: round(process.resourceUsage().maxRSS / 1e6, 2),
    peerPeakGigabytes: round(peerBytes / 1e9, 2),
    ...(rank === 0 ? { gflops: round((flops(numbers) / ms) * 1e-6) } : {}),
  };
}

/** `trained` is `base` itself, or the adapters of `base`. */
interface Model {
  readonly config: ModelConfig;
  readonly base: Parameters;
  readonly trained: Parameters;
}

function makeModel(numbers: Numbers): Model {
  const { rank } = numbers;
  const lora = rank === 0 ? null : { rank, alpha: rank, targets: [...LORA_TARGETS] };
  const config = { ...referenceModel(numbers), lora, tiedEmbedding: rank > 0 };
  const base = layParameters(baseOf(config));
  initialize(base, sequence(1, "reference weights"));
  const trained = rank === 0 ? base : layParameters(config);
  if (rank > 0) initialize(trained, sequence(1, "reference adapters"));
  return { config, base, trained };
}

/** Writes the file in parts, so that the process reaches its peak of memory in the step, not here. */
async function writeWeights(path: string, { config, base, trained }: Model): Promise<void> {
  const adapters = config.lora === null ? [] : trained.views;
  const file = await open(path, "wx");
  for (const part of safetensorsParts([...huggingFaceViews(baseOf(config), base), ...adapters])) {
    for (let at = 0; at < part.length; ) at += (await file.write(part, at)).bytesWritten;
  }
  await file.close();
}

/** Tokens and advantages (B, T), as the peer reads them; an advantage of the first token is not used. */
function makeData({ batch, length, vocabulary }: Numbers) {
  const uniform = sequence(2, "reference data");
  const fill = (value: () => number) => Float32Array.from({ length: batch * length }, value);
  const shape = [batch, length];
  return new Map([
    ["tokens", { shape, values: fill(() => Math.floor(uniform() * vocabulary)) }],
    ["advantages", { shape, values: fill(() => 4 * uniform() - 2) }],
  ]);
}

/** Multiplications and additions of a step's matrix products; the backward pass has twice those of the forward pass. */
function flops({ d, layers, heads, kvHeads, hidden, vocabulary, batch, length }: Numbers): number {
  const perToken = layers * (d * d * (2 + (2 * kvHeads) / heads) + 3 * d * hidden) + d * vocabulary;
  return 3 * 2 * batch * length * (perToken + layers * 2 * length * d);
}

/** Bunraku's side: the network of a learner. @returns its training step, which gives the loss */
async function bunrakuStep(
  numbers: Numbers,
  engine: CompiledOptions,
  { config, base, trained }: Model,
  data: ReturnType<typeof makeData>,
): Promise<() => Promise<number>> {
  const { batch, length, microBatchTokens } = numbers;
  const row = (name: string, i: number) => data.get(name)!.values.subarray(i * length, (i + 1) * length);
  const written = Int32Array.from({ length: length - 1 }, (_, t) => t + 1);
  const rows = Array.from({ length: batch }, (_, i) => i);
  const sequences = rows.map((i) => ({ tokens: Int32Array.from(row("tokens", i)), written }));
  const limits = { tokensMax: microBatchTokens, lengthMultiple: 8, widthMultiple: 8 };
  const scale = 1 / (batch * (length - 1));
  const weights = rows.map((i) =>
    row("advantages", i)
      .subarray(1)
      .map((advantage) => advantage * scale),
  );
  const frozen = config.lora === null ? null : layFrozen(config, base.flat);
  const network = await Network.create(compiledEngine(engine), config, trained, { frozen });
  return async () => {
    const { loss } = await network.accumulate(OBJECTIVE, sequences, { weights }, limits);
    await network.step(ADAMW);
    return loss!;
  };
}

/** Takes `count` steps. @returns the loss before each step, and the median of the times */
async function repeated(step: () => Promise<number>, count: number): Promise<{ losses: number[]; ms: number }> {
  const losses: number[] = [];
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const started = performance.now();
    losses.push(await step());
    times.push(performance.now() - started);
  }
  return { losses, ms: median(times) };
}

/** @throws {Error} if a first loss differs, because then the two sides do different work. */
function compareLosses(ours: readonly number[], { losses }: PeerReport, rounded: Bfloat16Products): void {
  for (const [variant, theirs] of Object.entries(losses)) {
    if (variant.toLowerCase().includes("bfloat16")) continue;
    for (const [step, loss] of theirs.entries()) {
      const allowed =
        rounded === "all" || (rounded === "gradients" && step > 0) ? ROUNDED_LOSS_TOLERANCE : LOSS_TOLERANCE;
      if (!(Math.abs(loss - ours[step]!) < allowed))
        throw new Error(`first losses differ: ours ${ours}, PyTorch ${variant} ${theirs}; allowed ${allowed}`);
    }
  }
}
