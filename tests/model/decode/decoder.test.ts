/** Decoding with a cache equals the whole forward pass, and does not depend on the batch. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Decoder } from "../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { f32, i32 } from "../../../model/engine/engine.ts";
import { machineInstructions, missingForBfloat16 } from "../../../model/engine/native/machine.ts";
import { ModelConfig, parameterShapes } from "../../../model/policy/model-config.ts";
import { parameterArrays } from "../../../model/policy/parameters.ts";
import { hiddenStates, logits } from "../../../model/policy/transformer.ts";
import { engines } from "../engine/engines.ts";
import { farthest } from "../farthest.ts";
import { goldenModel } from "../policy/golden-model.ts";
import { tinyParameters } from "../policy/tiny-policy.ts";
import { stepSlots } from "./steps.ts";

const engine = compiledEngine({ threads: 1 });
/** Rounds the factors of products, if this CPU multiplies bfloat16. */
const rounding = compiledEngine({ threads: 1, bfloat16Products: missingForBfloat16() === null ? "all" : "none" });
/** Heads that onnxruntime's own attention takes (a multiple of 16), and heads that run by definition. */
const wide = ModelConfig.parse({
  vocabulary: 24,
  width: 32,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headWidth: 16,
  hidden: 24,
});
/** Longer sums than onnxruntime adds up in one go: 128 terms, and 352. */
const long = ModelConfig.parse({
  ...wide,
  width: 128,
  headWidth: 32,
  hidden: 352,
  layers: 1,
});
const narrow = ModelConfig.parse({ ...wide, headWidth: 8 });
const models = [
  ["wide heads", wide],
  ["narrow heads", narrow],
  ["long sums", long],
] as const;
/** Weights of about 0.2, so that logits are far apart; of sums of 128 terms a third of it. */
const parametersOf = (config: ModelConfig, seed = 1) => tinyParameters(config, seed, config.width > 64 ? 4 : 10);
const make = (config: ModelConfig, slots = 8, capacity = 40, on = engine) =>
  new Decoder(on, config, parametersOf(config).flat, { slots, capacity });

/** Deterministic tokens below 24. */
const tokens = (seed: number, count: number) =>
  Array.from({ length: count }, (_, i) => (seed * 7 + i * i * 5 + i) % 24);
const bits = (values: Float32Array) => [...new Uint32Array(values.slice().buffer)];
const row = (values: Float32Array, index: number) => values.slice(index * 24, (index + 1) * 24);

/** The engine, and the names of the functions that it compiled: of all, and of those whose products have few rows. */
function watch() {
  const names: string[] = [];
  const ofFewRows: string[] = [];
  const watched: typeof engine = {
    ...engine,
    compile(name, build, inputs, options) {
      names.push(name);
      if (options?.fewRows === true) ofFewRows.push(name);
      return engine.compile(name, build, inputs, options);
    },
  };
  return { names, ofFewRows, watched };
}

/** (T, V) logits of a whole sequence, without a cache. */
async function whole(config: ModelConfig, sequence: readonly number[]): Promise<Float32Array> {
  const length = sequence.length;
  const specs = [...parameterShapes(config)].map(([name, shape]) => [name, f32(...shape)]);
  const run = await engine.compile(
    "whole",
    (x) => ({
      logits: logits(config, x, hiddenStates(config, x, x["tokens"]!)),
    }),
    { tokens: i32(1, length), ...Object.fromEntries(specs) },
  );
  const out = engine.array(f32(length, config.vocabulary));
  const fed = engine.array(i32(1, length), Int32Array.from(sequence));
  await run.run({ tokens: fed, ...parameterArrays(engine, parametersOf(config)) }, { logits: out });
  return out.read() as Float32Array;
}

describe.each([
  ...models.map(([name, config]) => [name, config, false, 1e-5, engine] as const),
  ["wide heads, and caches in half precision where machine code runs", wide, true, 5e-3, engine] as const,
  ["long sums, and rounded factors where the CPU multiplies bfloat16", long, false, 5e-2, rounding] as const,
])("a decoder with %s", (_, config, halfCaches, tolerance, own) => {
  const make = (config: ModelConfig, slots = 8, capacity = 40, on = own) =>
    new Decoder(on, config, parametersOf(config).flat, { slots, capacity, halfCaches });

  test("gives after each token the logits of the whole sequence", async () => {
    const sequence = tokens(3, 30);
    const expected = await whole(config, sequence);
    const decoder = make(config);
    const said = [await decoder.append([2], [sequence.slice(0, 11)])];
    for (const token of sequence.slice(11, 20)) said.push(row(await stepSlots(decoder, [-1, -1, token]), 2));
    said.push(await decoder.append([2], [sequence.slice(20)]));
    const places = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 29];
    for (const [i, place] of places.entries()) expect(farthest(said[i]!, row(expected, place))).toBeLessThan(tolerance);
    await expect(decoder.length(2)).toBe(30);
    await expect(decoder.room(2)).toBe(10);
  });

  test("gives nearly equal logits for tokens appended in pieces and at once", async () => {
    const sequence = tokens(5, 24);
    const once = await make(config).append([0], [sequence]);
    const pieces = make(config);
    await pieces.append([0], [sequence.slice(0, 1)]);
    await pieces.append([0], [sequence.slice(1, 10)]);
    expect(farthest(await pieces.append([0], [sequence.slice(10)]), once)).toBeLessThan(tolerance);
  });

  test("gives a sequence the same bits in any slot and batch", async () => {
    /** Two turns of prompt and reply in a slot, among other sequences that come, go and grow beside it. */
    const play = async (decoder: Decoder, slot: number, others: readonly number[]) => {
      const heard: number[][] = [];
      for (const [turn, length] of [9, 5].entries()) {
        const company = others.filter((other) => other !== slot);
        const grow = (other: number) => tokens(other + turn, 3 + ((other * 5) % 9));
        const slots = [...company, slot];
        const said = await decoder.append(slots, [...company.map(grow), tokens(11 + turn, length)]);
        heard.push(bits(row(said, company.length)));
        for (let i = 0; i < 3; i++) {
          const fed = new Array<number>(Math.max(...slots) + 1).fill(-1);
          for (const other of company) if ((other + i) % 3 > 0) fed[other] = (other + i) % 24;
          // Once it waits while others continue.
          if (i === 1 && company.length > 0) await stepSlots(decoder, fed);
          fed[slot] = (turn + 5 * i) % 24;
          heard.push(bits(row(await stepSlots(decoder, fed), slot)));
        }
      }
      return heard;
    };
    const alone = await play(make(config), 0, []);
    const decoder = make(config, 24);
    const slots = fc.integer({ min: 0, max: 23 });
    const company = fc.uniqueArray(slots, { maxLength: 23 });
    await fc.assert(
      fc.asyncProperty(slots, company, async (slot, others) => {
        for (let each = 0; each < 24; each++) decoder.clear(each);
        expect(await play(decoder, slot, others)).toEqual(alone);
      }),
      { numRuns: 12 },
    );
  });

  test("gives a growing sequence the same bits beside shorter and longer ones", async () => {
    const sequence = tokens(3, 150);
    const expected = await whole(config, sequence);
    const ends = [20, 60, 70, 130, 150];
    const grow = async (decoder: Decoder, others: readonly number[]) => {
      const said: Float32Array[] = [];
      for (const [i, end] of ends.entries()) {
        const company = others.map((slot) => tokens(slot, [5, 40, 28][(slot + i) % 3]!));
        const all = await decoder.append([...others, 6], [...company, sequence.slice(ends[i - 1] ?? 0, end)]);
        said.push(row(all, others.length));
      }
      return said;
    };
    const alone = await grow(make(config, 8, 260), []);
    for (const [i, end] of ends.entries()) expect(farthest(alone[i]!, row(expected, end - 1))).toBeLessThan(tolerance);
    const beside = await grow(make(config, 8, 260), [0, 1, 2, 3, 7]);
    expect(beside.map(bits)).toEqual(alone.map(bits));
  });

  test("goes on with the same bits after two slots were exchanged, one of them free", async () => {
    const slots = [1, 2, 4];
    const pieces = slots.map((slot) => tokens(slot, 3 + 4 * slot));
    const [moved, still] = [make(config), make(config)];
    await moved.append(slots, pieces);
    await still.append(slots, pieces);
    moved.swap(1, 4);
    moved.swap(2, 0);
    expect([0, 1, 2, 4].map((slot) => moved.length(slot))).toEqual([11, 19, 0, 7]);
    const places = [4, 0, 1];
    const after = await stepSlots(moved, [6, 7, -1, -1, 5]);
    const expected = await stepSlots(still, [-1, 5, 6, -1, 7]);
    for (const [i, slot] of slots.entries()) expect(bits(row(after, places[i]!))).toEqual(bits(row(expected, slot)));
    const more = slots.map((slot) => tokens(slot + 9, 6));
    expect(bits(await moved.append(places, more))).toEqual(bits(await still.append(slots, more)));
  });

  test("goes on with the same bits from a copy of its first tokens", async () => {
    const [decoder, alone] = [make(config), make(config)];
    await decoder.append([3], [tokens(2, 11)]);
    await alone.append([1], [tokens(2, 11)]);
    await decoder.append([3], [tokens(5, 7)]);
    decoder.copy(3, 1, 11);
    expect([1, 3].map((slot) => decoder.length(slot))).toEqual([11, 18]);
    const more = tokens(4, 6);
    expect(bits(await decoder.append([1], [more]))).toEqual(bits(await alone.append([1], [more])));
  });

  test("forgets a cleared sequence", async () => {
    const decoder = make(config);
    const fresh = await decoder.append([0], [tokens(1, 5)]);
    decoder.clear(0);
    await decoder.append([0], [tokens(8, 9)]);
    decoder.clear(0);
    expect(bits(await decoder.append([0], [tokens(1, 5)]))).toEqual(bits(fresh));
  });
});

test.if(machineInstructions() !== null)("caches in half precision change logits a little", async () => {
  const full = await make(wide).append([0], [tokens(3, 30)]);
  const options = { slots: 8, capacity: 40, halfCaches: true };
  const half = await new Decoder(engine, wide, parametersOf(wide).flat, options).append([0], [tokens(3, 30)]);
  expect(farthest(half, full)).toBeLessThan(5e-3);
  expect(farthest(half, full)).toBeGreaterThan(1e-5);
});

test("steps are compiled for products of few rows, and appends are not", async () => {
  const { names, ofFewRows, watched } = watch();
  const decoder = make(models[0]![1], 8, 40, watched);
  await decoder.append([0, 1], [tokens(1, 3), tokens(2, 3)]);
  await decoder.step([0, 1], [1, 2]);
  await decoder.append([0], [tokens(3, 9)]);
  expect(ofFewRows).toEqual(["decode: step 4"]);
  expect(names.filter((name) => name.startsWith("decode: append"))).toHaveLength(2);
});

test("a function that could not be compiled, as when memory is short, is compiled at its next use", async () => {
  let free = 0;
  const short: typeof engine = {
    ...engine,
    async compile(...call) {
      if (--free < 0) throw new Error("no memory");
      return engine.compile(...call);
    },
  };
  const [decoder, sound] = [make(wide, 8, 40, short), make(wide)];
  await expect(decoder.append([0], [[1, 2]])).rejects.toThrow("no memory");
  free = 1;
  expect(bits(await decoder.append([0], [[1, 2]]))).toEqual(bits(await sound.append([0], [[1, 2]])));
  await expect(decoder.step([0], [3])).rejects.toThrow("no memory");
  free = 1;
  expect(bits(await stepSlots(decoder, [3]))).toEqual(bits(await stepSlots(sound, [3])));
});

test("a sequence keeps no more tokens than it has", async () => {
  const decoder = make(wide);
  await decoder.append([2], [tokens(1, 5)]);
  for (const length of [6, -1, 1.5])
    expect(() => decoder.truncate(2, length)).toThrow(`slot 2: cannot keep ${length} of 5 tokens`);
  decoder.truncate(2, 3);
  expect(decoder.length(2)).toBe(3);
});

describe("an append of many tokens", () => {
  const appended = async (count: number, length: number) => {
    const { names, watched } = watch();
    const slots = Array.from({ length: count }, (_, slot) => slot);
    const pieces = slots.map((slot) => tokens(slot, length));
    const logits = await make(wide, count, 1300, watched).append(slots, pieces);
    return { names, logits, pieces };
  };

  test.each([
    [23, 20, ["16 x 24", "4 x 24", "2 x 24", "1 x 24"]],
    [3, 250, ["2 x 256", "1 x 256"]],
    [2, 1100, ["1 x 512", "2 x 80"]],
  ])("computes %p sequences of %p tokens in batches of at most 512 tokens", async (count, length, batches) => {
    const { names } = await appended(count, length);
    expect(names).toEqual(batches.map((batch) => `decode: append ${batch}`));
  });

  test("may end one sequence while another sequence continues", async () => {
    const decoder = make(wide, 4, 520);
    await decoder.append([0, 1], [tokens(1, 512), tokens(2, 513)]);
    expect([decoder.length(0), decoder.length(1)]).toEqual([512, 513]);
  });

  test("gives the logits of the whole sequence", async () => {
    const { logits, pieces } = await appended(2, 1100);
    for (const [i, piece] of pieces.entries())
      expect(farthest(row(logits, i), row(await whole(wide, piece), 1099))).toBeLessThan(1e-5);
  });
});

test.each(models)(
  "with %s, appends to slots of common caches, as on a GPU, equal appends to own caches",
  async (_, config) => {
    // Machine code interleaves keys in a cache, which the definition does not read.
    const inSlots = { ...compiledEngine({ threads: 1, instructions: null }), slotReaders: () => "appends" as const };
    const decoders = [make(config, 24), make(config, 24, 40, inSlots)];
    /** 20 slots in mixed order, of which two appends take most. */
    const slots = Array.from({ length: 20 }, (_, i) => (i * 7) % 23);
    const run = async (decoder: Decoder) => {
      const first = await decoder.append(
        slots,
        slots.map((slot) => tokens(slot, 3 + (slot % 11))),
      );
      const second = await decoder.append(
        slots.slice(4),
        slots.slice(4).map((slot) => tokens(slot + 1, 1 + (slot % 5))),
      );
      const last = await stepSlots(
        decoder,
        Array.from({ length: 24 }, (_, slot) => (slots.includes(slot) ? slot : -1)),
      );
      return [...first, ...second, ...slots.flatMap((slot) => [...row(last, slot)])];
    };
    const [expected, got] = await Promise.all(decoders.map(run));
    expect(farthest(got!, expected!)).toBeLessThan(1e-5);
  },
);

describe("a decoder's parameters", () => {
  test("can be exchanged", async () => {
    const decoder = make(wide);
    const other = parametersOf(wide, 2).flat;
    const before = await decoder.append([0], [tokens(1, 5)]);
    decoder.setParameters(other);
    decoder.clear(0);
    const fresh = new Decoder(engine, wide, other, { slots: 8, capacity: 40 });
    const after = await decoder.append([0], [tokens(1, 5)]);
    expect(bits(after)).toEqual(bits(await fresh.append([0], [tokens(1, 5)])));
    // A step that ran before takes them too.
    const stepped = async (decoder: Decoder) => bits(await stepSlots(decoder, [7]));
    const again = await stepped(decoder);
    expect(again).toEqual(await stepped(fresh));
    decoder.setParameters(parametersOf(wide).flat);
    decoder.clear(0);
    await decoder.append([0], [tokens(1, 5)]);
    const first = make(wide);
    await first.append([0], [tokens(1, 5)]);
    expect(await stepped(decoder)).toEqual(await stepped(first));
    expect(farthest(after, before)).toBeGreaterThan(0.1);
  });
});

describe("an invalid request", () => {
  test.each([
    [[], "slot 1: cannot append 0 tokens; it has 14 of 16"],
    [[1, 2, 3], "slot 1: cannot append 3 tokens; it has 14 of 16"],
  ])("is refused before anything changes: append %p", async (added, message) => {
    const decoder = make(wide, 4, 16);
    await decoder.append([1], [tokens(1, 14)]);
    await expect(decoder.append([0, 1], [[5], added])).rejects.toThrow(new RangeError(message));
    expect([decoder.length(0), decoder.length(1)]).toEqual([0, 14]);
  });

  test.each([
    [1_000_000, 40, "8.2 GB"],
    [4, 40_000_000, "20.5 GB"],
  ])("is refused: %p slots of %p tokens, which no array holds", (slots, capacity, size) => {
    const text = `cannot decode in ${slots} slots of ${capacity} tokens: they need an array of ${size}, and an array has less`;
    expect(() => make(wide, slots, capacity)).toThrow(text);
  });

  test("is refused: two pieces or two tokens for one slot", async () => {
    const message = "cannot append 2 pieces to slots 1,1; each needs a slot of its own";
    await expect(make(wide).append([1, 1], [[1], [2]])).rejects.toThrow(new RangeError(message));
    const ofTokens = "cannot step 2 tokens in slots 1,1; each needs a slot of its own";
    await expect(make(wide).step([1, 1], [1, 2])).rejects.toThrow(new RangeError(ofTokens));
  });

  test("is refused: a step beyond the capacity, or beyond the slots", async () => {
    const decoder = make(wide, 4, 16);
    await decoder.append([1], [tokens(1, 16)]);
    const message = "slot 1: no room for a token beyond the capacity of 16";
    await expect(decoder.step([0, 1], [3, 3])).rejects.toThrow(new RangeError(message));
    await expect(decoder.step([4], [0])).rejects.toThrow(new RangeError("cannot step slot 4: there are 4 slots"));
    expect([decoder.length(0), decoder.length(1)]).toEqual([0, 16]);
  });
});

test("a batch in three lanes equals one in one lane, bit for bit", async () => {
  const said = async (threads: number) => {
    const decoder = make(long, 41, 12, compiledEngine({ threads }));
    const slots = Array.from({ length: 41 }, (_, slot) => slot);
    const all = [
      await decoder.append(
        slots,
        slots.map((slot) => tokens(slot, 1 + (slot % 4))),
      ),
    ];
    for (let i = 0; i < 3; i++) {
      const next = slots.map((slot) => (slot === 20 ? -1 : (slot * 5 + i) % 24));
      all.push(await stepSlots(decoder, next));
    }
    return all.map(bits);
  };
  expect(await said(3)).toEqual(await said(1));
});

describe.each(["tied", "untied", "wide"])("greedy decoding of Hugging Face's %s Qwen2", (variant) => {
  test.each(engines)("gives its tokens and log-probabilities on the %s engine", async (_, on) => {
    const { record, model, parameters } = await goldenModel(variant);
    const { prompt, tokens: expected, logProbs } = record.decode;
    const slots = prompt.map((_: unknown, slot: number) => slot);
    const decoder = new Decoder(on, model, parameters.flat, {
      slots: slots.length,
      capacity: 32,
    });
    let said: Float32Array = await decoder.append(slots, prompt);
    for (let i = 0; i < expected[0]!.length; i++) {
      const chosen = slots.map((slot: number) => {
        const values = said.subarray(slot * model.vocabulary, (slot + 1) * model.vocabulary);
        const best = values.indexOf(Math.max(...values));
        const total = Math.log(values.reduce((sum, value) => sum + Math.exp(value - values[best]!), 0));
        expect(best).toBe(expected[slot]![i]!);
        expect(Math.abs(-total - logProbs[slot]![i]!)).toBeLessThan(1e-4);
        return best;
      });
      said = await stepSlots(decoder, chosen, model.vocabulary);
    }
  });
});
