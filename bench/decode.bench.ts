/**
 * Tokens per second of batched decoding with a key/value cache, sampled as in a rollout, compared with a loop in PyTorch and with Hugging
 * Face's generate. Run: bun run bench decode [--decode.batch=8 …]
 * With --decode.bfloat16Products=all, Bunraku rounds the factors of products; PyTorch does not.
 * Goal: 3 times the speed of generate, and twice the speed of the loop. The bench prints, but does not check, two more numbers: Bunraku's
 * speed, which should be 6,000 tokens/s, and its share of time outside the engine (sampling, bookkeeping), which should be below 10 %.
 * Both sides measure the forward pass of the prompt too.
 */
import { Decoder } from "../model/decode/decoder.ts";
import { Generator } from "../model/decode/generate.ts";
import { type CompiledOptions, compiledEngine } from "../model/engine/compiled.ts";
import type { Engine } from "../model/engine/engine.ts";
import { initialize, layParameters } from "../model/policy/parameters.ts";
import { hash64, sequence } from "../model/rng.ts";
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

export const summary = "batched decoding with a key/value cache, tokens per second of one core, compared with PyTorch";

const DEFAULTS = { ...REFERENCE, batch: 64, prompt: 16, tokens: 240, threads: 1, rounds: 3 };
type Numbers = { readonly [K in keyof typeof DEFAULTS]: number };

const SETTINGS = { temperature: 1, topP: 1, topK: 0 };

interface PeerReport {
  readonly torch: string;
  readonly tokensPerSecond: { readonly loop: number; readonly generate: number };
}

export async function run(options: Readonly<Record<string, string>>) {
  const numbers = numbersOf("decode", DEFAULTS, options, ENGINE_OPTIONS);
  const python = pythonOf(options);
  await checkPython(python, ["torch", "numpy", "safetensors", "transformers"]);
  const { batch, prompt, tokens, threads } = numbers;
  const size = { batch, prompt, tokens, threads };
  const engine = { threads, ...engineOf(options) };
  const { device, bfloat16Products } = engine;
  const args = [...peerArguments(numbers), ...flagsOf(size), ...peerDevice(device), "--rounds", "1"];
  const ours = bunrakuRound(numbers, engine);
  // Only machine code, which computes on a CPU, has caches in half precision.
  const oursHalf = device === "cpu" ? bunrakuRound(numbers, engine, true) : null;
  await ours();
  await oursHalf?.();
  const speeds: { ours: number; half: number | null; outside: number; loop: number; generate: number }[] = [];
  for (let turn = 0; turn < numbers.rounds; turn++) {
    const { tokensPerSecond, outside } = await ours();
    const half = (await oursHalf?.())?.tokensPerSecond ?? null;
    const peer = await runPeer<PeerReport>(python, "decode.py", args);
    speeds.push({ ours: tokensPerSecond, half, outside, ...peer.tokensPerSecond });
    console.log(
      `turn ${turn + 1}: ours ${round(tokensPerSecond, 0)} tokens/s, ` +
        `${half === null ? "" : `${round(half, 0)} with caches in half precision, `}${round(outside * 100)} % outside the engine; ` +
        `torch ${peer.torch} loop ${peer.tokensPerSecond.loop}, transformers generate ${peer.tokensPerSecond.generate}`,
    );
  }
  const medianOf = (name: keyof (typeof speeds)[0]) => median(speeds.map((speed) => speed[name]!));
  const where = device === "cpu" ? (threads === 1 ? "one thread" : `${threads} threads`) : device;
  const comparison = (own: "ours" | "half", peer: "loop" | "generate", goal: number): Comparison => ({
    what: `decode, batch ${batch}, ${where}${own === "half" ? ", half caches" : ""}${roundingInWords(bfloat16Products)}`,
    ours: `${round(medianOf(own), 0)} tokens/s`,
    reference: `${peer === "loop" ? "PyTorch loop" : "transformers' generate"} ${round(medianOf(peer), 0)}`,
    speed: round(medianOf(own) / medianOf(peer), 2),
    goal,
  });
  return {
    name: "decode",
    comparisons: [
      comparison("ours", "generate", 3),
      comparison("ours", "loop", 2),
      ...(oursHalf === null ? [] : [comparison("half", "generate", 3), comparison("half", "loop", 2)]),
    ],
    tokensPerSecond: round(medianOf("ours"), 0),
    tokensPerSecondPerCore: round(medianOf("ours") / threads, 0),
    ...(oursHalf !== null && { halfTokensPerSecond: round(medianOf("half"), 0) }),
    outsideShare: round(medianOf("outside"), 3),
    peerLoop: round(medianOf("loop"), 0),
    peerGenerate: round(medianOf("generate"), 0),
  };
}

/** Bunraku's side: the generator of a sampler. @returns a function that decodes the batch once */
function bunrakuRound(numbers: Numbers, options: CompiledOptions, halfCaches = false) {
  const { batch, prompt, tokens, vocabulary } = numbers;
  const config = referenceModel(numbers);
  const parameters = layParameters(config);
  initialize(parameters, sequence(1, "reference weights"));
  const engine = compiledEngine(options);
  let engineMs = 0;
  /** The same engine, with a clock that adds up the time of its calls. */
  const timed: Engine = {
    ...engine,
    runLanes: async (lists) => {
      const started = performance.now();
      await engine.runLanes(lists);
      engineMs += performance.now() - started;
    },
  };
  const decoder = new Decoder(timed, config, parameters.flat, { slots: batch, capacity: prompt + tokens, halfCaches });
  const generator = new Generator(decoder, vocabulary, batch);
  const uniform = sequence(2, "reference prompts");
  const token = () => Math.floor(uniform() * vocabulary);
  const prompts = Array.from({ length: batch }, () => Array.from({ length: prompt }, token));
  let rounds = 0;
  return async (): Promise<{ tokensPerSecond: number; outside: number }> => {
    const names = prompts.map((_, i) => `${rounds}.${i}`);
    rounds++;
    for (const name of names) generator.open(name);
    engineMs = 0;
    const started = performance.now();
    const replies = names.map((name, i) => {
      const coins = { seed: 1, episode: hash64(name) };
      return generator.reply(name, { prompt: prompts[i]!, coins, settings: SETTINGS, stops: [], tokensMax: tokens });
    });
    await Promise.all(replies);
    const ms = performance.now() - started;
    for (const name of names) generator.close(name);
    return { tokensPerSecond: (batch * tokens * 1000) / ms, outside: 1 - engineMs / ms };
  };
}
