/**
 * `bun run export`: what it writes, read back by us, by transformers and by llama.cpp. Tests of the last two run where these are installed:
 * BUNRAKU_PYTHON (bench/peers/README.md) has transformers, and BUNRAKU_LLAMA is a folder in which node-llama-cpp 3.22.1 is installed.
 */

import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type * as tf from "@tensorflow/tfjs-core";
import { saveCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { withoutSecrets } from "../../actors/config/config.ts";
import type { Tree } from "../../actors/config/layers.ts";
import { loadPretrained, policyOf, readPretrained } from "../../actors/policy/pretrained.ts";
import { ggufTokenizer } from "../../model/checkpoint/gguf-model.ts";
import { readSafetensors } from "../../model/checkpoint/safetensors.ts";
import { Decoder } from "../../model/decode/decoder.ts";
import { compiledEngine } from "../../model/engine/compiled.ts";
import { f32, i32 } from "../../model/engine/engine.ts";
import { type ModelConfig, parameterShapes } from "../../model/policy/model-config.ts";
import { initialize, layParameters, parameterArrays } from "../../model/policy/parameters.ts";
import { hiddenStates, logits } from "../../model/policy/transformer.ts";
import { sequence } from "../../model/rng.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { aConfig } from "../fixtures.ts";
import { stepSlots } from "../model/decode/steps.ts";
import { farthest } from "../model/farthest.ts";
import { tinyModel } from "../model/policy/tiny-policy.ts";
import { describeWhere, lackOfPython, pythonHere, testWhere } from "../needs.ts";
import { commandHere } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

setDefaultTimeout(60_000);

const python = pythonHere();
const llama = process.env["BUNRAKU_LLAMA"] ?? null;

const home = temporaryFolder();
const engine = compiledEngine({ threads: 1 });
const modelOf = (name: string) => join(import.meta.dir, "../golden/checkpoints", name);

/** Folders of runs that have one checkpoint, of random weights: the built-in policy, and adapters. */
const [builtin, adapters] = [join(home, "run"), join(home, "adapters")];
beforeAll(async () => {
  const shape = { width: 32, layers: 2, heads: 2, kvHeads: 1, hidden: 64 };
  // Large enough that greedy choices are clear.
  await fakeRun(builtin, { model: shape }, (value) => 8 * value);
  const uniform = sequence(2, "export");
  const lora = { path: modelOf("qwen3"), lora: { rank: 2, alpha: 6, targets: ["q_proj", "o_proj", "up_proj"] } };
  await fakeRun(adapters, { model: lora, warmStart: { enabled: false } }, () => uniform() - 0.5);
});

async function fakeRun(folder: string, values: Tree, change: (value: number) => number): Promise<void> {
  const config = aConfig(values);
  mkdirSync(folder);
  writeFileSync(join(folder, "config.json"), JSON.stringify(withoutSecrets(config)));
  const { model, dialogue } = policyOf(config);
  const parameters = layParameters(model);
  initialize(parameters, sequence(1, "export"));
  for (let i = 0; i < parameters.flat.length; i++) parameters.flat[i] = change(parameters.flat[i]!);
  const still = new Float32Array(parameters.flat.length);
  await saveCheckpoint(join(folder, "checkpoints"), {
    update: 4,
    model,
    tokenizer: dialogue.digest,
    state: {},
    critic: null,
    policy: { parameters: parameters.flat, moment: still, variance: still, step: 0 },
  });
}

async function exported(to: string, ...source: string[]): Promise<string> {
  const out = join(home, `${crypto.randomUUID()}.${to}`);
  const ended = await commandHere(["export", ...source, "--to", to, "--out", out]);
  expect(ended).toMatchObject({ code: 0, err: "" });
  return out;
}

const sources = ["qwen2", "qwen3", "llama"].map((name) => [name, ["--model", modelOf(name)]] as const);
const BUILTIN = "the built-in policy";
const all = [
  ...sources,
  [BUILTIN, ["--policy", builtin]] as const,
  ["merged adapters", ["--policy", adapters]] as const,
];
const texts = [
  "Hello, Welt! 你好",
  "<think> push Up</think><answer>Up || Left</answer>",
  "It's  1234.5\n\n\tx",
  "naïve 🤖 e\u0301",
];
const composed = texts.filter((text) => text.normalize("NFC") === text);
const dialogue = [{ role: "user", content: "State:\n#P_X#" } as const];

async function read(folder: string) {
  const read = readPretrained(folder);
  const parameters = layParameters(read.model);
  await loadPretrained(folder, read.model, parameters);
  return { ...read, parameters };
}

test.each(sources)("a folder of %s is the model that it was made of", async (_, source) => {
  const [before, after] = [await read(source[1]), await read(await exported("hf", ...source))];
  expect(after.model).toEqual(before.model);
  expect(after.parameters.flat).toEqual(before.parameters.flat);
  expect(after.dialogue.digest).toBe(before.dialogue.digest);
});

test("a folder of the built-in policy can be trained on, and speaks as it did", async () => {
  const after = await read(await exported("hf", "--policy", builtin, "--checkpoint", "u000004"));
  const own = builtinDialogue();
  const options = { first: true, prefix: "<think>" } as const;
  expect(after.dialogue.promptTokens(dialogue, options)).toEqual(own.promptTokens(dialogue, options));
  expect(after.dialogue.stops).toEqual(own.stops);
  for (const text of texts) {
    const said = own.replyTokens(`<think>${text}`, "<think>");
    expect(after.dialogue.replyTokens(`<think>${text}`, "<think>")).toEqual(said);
    expect(after.dialogue.replyText(said, "<think>")).toBe(`<think>${text}`);
  }
});

const tokens = Array.from({ length: 2 }, (_, row) =>
  Array.from({ length: 9 }, (_, i) => (37 * row + 13 * i + 5) % 300),
);

async function ourLogits(model: ModelConfig, parameters: ReturnType<typeof layParameters>): Promise<Float32Array> {
  const [rows, length] = [tokens.length, tokens[0]!.length];
  const shapes = Object.fromEntries([...parameterShapes(model)].map(([name, shape]) => [name, f32(...shape)]));
  const compute = await engine.compile(
    "logits",
    (x: Readonly<Record<string, tf.Tensor>>) => ({ logits: logits(model, x, hiddenStates(model, x, x["tokens"]!)) }),
    { tokens: i32(rows, length), ...shapes },
  );
  const out = engine.array(f32(rows * length, model.vocabulary));
  const fed = engine.array(i32(rows, length), Int32Array.from(tokens.flat()));
  await compute.run({ tokens: fed, ...parameterArrays(engine, parameters) }, { logits: out });
  return out.read() as Float32Array;
}

interface PeerAnswer {
  readonly logits: number[];
  readonly ids: number[][];
  readonly prompt: number[];
}

/** peers/logits.py. All tests share one process, because importing torch and transformers takes seconds. */
let peer: {
  readonly process: Bun.Subprocess<"pipe", "pipe", "inherit">;
  readonly answers: AsyncIterator<string>;
} | null = null;
afterAll(() => peer?.process.kill());

async function askPeer(folder: string, texts: readonly string[]): Promise<PeerAnswer> {
  if (peer === null) {
    const script = join(import.meta.dir, "peers", "logits.py");
    const process = Bun.spawn([python!, script], { stdio: ["pipe", "pipe", "inherit"] });
    peer = { process, answers: createInterface({ input: Readable.fromWeb(process.stdout) })[Symbol.asyncIterator]() };
  }
  peer.process.stdin.write(`${JSON.stringify({ folder, tokens, texts, dialogue })}\n`);
  const { value, done } = await peer.answers.next();
  if (done === true) throw new Error("peers/logits.py ended without an answer (see above)");
  return JSON.parse(value) as PeerAnswer;
}

describeWhere(lackOfPython("torch, transformers"), "transformers", () => {
  test.each([...all, ...["gemma3", "qwen3_moe"].map((name) => [name, ["--model", modelOf(name)]] as const)])(
    "computes the same logits and tokens from a folder of %s",
    async (name, source) => {
      const folder = await exported("hf", ...source);
      const { model, parameters, dialogue: ours } = await read(folder);
      // transformers composes characters for every Qwen2, whatever its tokenizer.json says.
      const given = name === BUILTIN ? composed : texts;
      const said = await askPeer(folder, given);
      expect(farthest(await ourLogits(model, parameters), said.logits)).toBeLessThan(1e-4);
      const think = ours.replyTokens("<think><think>", "<think>").slice(0, -1);
      expect([...said.prompt, ...think]).toEqual(ours.promptTokens(dialogue, { first: true, prefix: "<think>" }));
      const byUs =
        name === BUILTIN ? builtinIds : (text: string) => ours.replyTokens(`<think>${text}`, "<think>").slice(0, -1);
      expect(said.ids).toEqual(given.map(byUs));
    },
  );
});

const builtinIds = (text: string) => new Tokenizer().encode(text);

test.each(["mistral", "smollm3", "gemma3", "qwen3_moe"])("%s is refused as GGUF, in one line", async (name) => {
  const out = join(home, `${name}.gguf`);
  const ended = await commandHere(["export", "--model", modelOf(name), "--to", "gguf", "--out", out]);
  expect(ended).toMatchObject({
    code: 1,
    err: expect.stringMatching(/^error: only a policy that .* as GGUF .*; a pretrained model can be exported to hf\n$/),
  });
});

test("a tokenizer that falls back to bytes is refused as GGUF, in one line", () => {
  const tokenizer = { model: { vocab: { a: 0 }, merges: [], byte_fallback: true }, pre_tokenizer: null };
  const special = { eos: 0, bos: null, pad: null, template: "" };
  expect(() => ggufTokenizer(tokenizer, tinyModel, special)).toThrow(
    "this tokenizer has byte fallback, like those of SentencePiece; gguf export writes only tokenizers with byte-level BPE, like GPT-2's; export to hf instead",
  );
});

test.each([
  ["[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?", "llama-bpe"],
  ["[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?", "qwen2"],
  // Mistral's tekken.
  ["[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}]*[\\p{Ll}\\p{Lm}]+|\\p{N}| ?", null],
])("the pre-tokenizer %p is %p to llama.cpp", (pattern, name) => {
  const tokenizer = {
    model: { vocab: { a: 0, b: 1, ab: 2 }, merges: ["a b"] },
    pre_tokenizer: { type: "Split", pattern: { Regex: pattern } },
  };
  const special = { eos: 0, bos: null, pad: null, template: "" };
  const write = () => ggufTokenizer(tokenizer, { ...tinyModel, vocabulary: 3 }, special).get("tokenizer.ggml.pre");
  if (name === null) expect(write).toThrow("pre-tokenizer is unknown; export to hf instead");
  else expect(write()).toEqual({ text: name });
});

test.each(["hf", "peft"] as const)("the parameters of %s are counted as they are written", async (to) => {
  const out = join(home, `count.${to}`);
  const { out: text } = await commandHere(["export", "--policy", adapters, "--to", to, "--out", out]);
  const weights = join(out, to === "hf" ? "model.safetensors" : "adapter_model.safetensors");
  const { tensors } = readSafetensors(await Bun.file(weights).bytes(), weights);
  const written = [...tensors.values()].reduce((sum, { values }) => sum + values.length, 0);
  expect(text).toContain(`wrote ${out}: ${written} parameters, from `);
});

test("adapters change the model that they are merged into, where they should", async () => {
  const [before, after] = [await read(modelOf("qwen3")), await read(await exported("hf", "--policy", adapters))];
  const changed = [...before.parameters.views].filter(([name, { values }]) => {
    return farthest(values, after.parameters.views.get(name)!.values) > 0;
  });
  expect(changed.map(([name]) => name.replace(/^.*layers\.\d+\./, ""))).toEqual([
    "self_attn.qkv_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.up_proj.weight",
    "self_attn.qkv_proj.weight",
    "self_attn.o_proj.weight",
    "mlp.up_proj.weight",
  ]);
});

testWhere(
  lackOfPython("torch, transformers, peft"),
  "peft computes with the adapters what transformers computes with them merged",
  async () => {
    const [folder, whole] = [await exported("peft", "--policy", adapters), await exported("hf", "--policy", adapters)];
    const [{ logits: added }, { logits: merged }] = [await askPeer(folder, []), await askPeer(whole, [])];
    expect(farthest(added, merged)).toBeLessThan(1e-4);
  },
);

describeWhere(llama === null ? "BUNRAKU_LLAMA is not set" : null, "llama.cpp", () => {
  test.each(all)("continues greedily as we do from a file of %s", async (name, source) => {
    const { model, parameters, dialogue: ours } = await read(await exported("hf", ...source));
    const file = await exported("gguf", ...source);
    const [prompts, count] = [tokens.map((row) => row.slice(0, 4)), 8];
    // llama.cpp neither composes characters nor matches added tokens from the left, as the built-in policy's literals need.
    const given = name === BUILTIN ? [] : composed;
    const script = join(import.meta.dir, "peers", "greedy.mjs");
    const child = Bun.spawnSync([
      process.execPath,
      script,
      llama!,
      file,
      JSON.stringify({ prompts, count, texts: given }),
    ]);
    const said = JSON.parse(child.stdout.toString()) as { tokens: number[][]; ids: number[][] };
    const expected = await greedy(model, parameters.flat, prompts, count);
    const ended = (rows: number[][]) => rows.map((row) => upTo(ours.stops, row));
    expect(ended(said.tokens)).toEqual(ended(expected));
    expect(said.ids).toEqual(given.map((text) => ours.replyTokens(`<think>${text}`, "<think>").slice(0, -1)));
  });
});

/** With the first of the stops. */
function upTo(stops: readonly number[], row: number[]): number[] {
  const end = row.findIndex((token) => stops.includes(token));
  return end < 0 ? row : row.slice(0, end + 1);
}

async function greedy(model: ModelConfig, flat: Float32Array, prompts: number[][], count: number): Promise<number[][]> {
  const decoder = new Decoder(engine, model, flat, { slots: prompts.length, capacity: 32 });
  const best = (all: Float32Array) =>
    prompts.map((_, row) => {
      const values = all.subarray(row * model.vocabulary, (row + 1) * model.vocabulary);
      return values.indexOf(Math.max(...values));
    });
  const said: number[][] = prompts.map(() => []);
  let next = best(await decoder.append([...prompts.keys()], prompts));
  for (;;) {
    for (const [row, token] of next.entries()) said[row]!.push(token);
    if (said[0]!.length === count) return said;
    next = best(await stepSlots(decoder, next, model.vocabulary));
  }
}

describe("what it refuses", () => {
  test.each<[string[], RegExp, number]>([
    [["--to", "hf", "--out", "x"], /name one source: --run RUN, --policy RUN or --model DIR/, 2],
    [["--policy", builtin, "--out", "x"], /--to takes hf, gguf, peft/, 2],
    [["--policy", builtin, "--to", "onnx", "--out", "x"], /--to takes hf, gguf, peft, got "onnx"/, 2],
    [["--policy", builtin, "--to", "hf"], /name the file or folder to write: --out PATH/, 2],
    [
      ["--model", modelOf("llama"), "--checkpoint", "u000001", "--to", "hf", "--out", "x"],
      /--checkpoint chooses a run's policy/,
      2,
    ],
    [
      ["--policy", builtin, "--to", "peft", "--out", join(home, "x")],
      /peft loads adapters, and this policy has none/,
      1,
    ],
    [["--policy", builtin, "--to", "hf", "--out", home], /exists; choose another --out/, 1],
    [
      ["--policy", builtin, "--to", "hf", "--out", join(builtin, "config.json", "x")],
      /cannot export to .*config\.json\/x: .*; choose another --out$/,
      1,
    ],
    [["--model", join(home, "nothing"), "--to", "hf", "--out", join(home, "x")], /there is no such folder/, 1],
  ])("%p", async (args, message, code) => {
    const ended = await commandHere(["export", ...args]);
    expect(ended).toMatchObject({ code, out: "" });
    expect(ended.err.trim()).toMatch(message);
    expect(ended.err.trim().split("\n")).toHaveLength(1);
  });
});

test("a run's own numbers are in the file: GGUF opens with its magic, its version and as many tensors as the policy has", async () => {
  const file = readFileSync(await exported("gguf", "--policy", builtin));
  expect(file.subarray(0, 4).toString("latin1")).toBe("GGUF");
  expect(file.readUInt32LE(4)).toBe(3);
  // Embedding and final norm; of each layer 2 norms, 4 projections with 3 biases, and 3 of the gated unit.
  expect(Number(file.readBigUInt64LE(8))).toBe(2 + 2 * 12);
});
