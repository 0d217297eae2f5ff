/** Replies equal those of a slow loop, do not depend on the batch, and fail one by one. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Decoder } from "../../../model/decode/decoder.ts";
import { Generator, type Reply, type ReplyRequest } from "../../../model/decode/generate.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { coin, hash64 } from "../../../model/rng.ts";
import { farthest } from "../farthest.ts";
import { referenceLogProbs, tinyModel, tinyParameters } from "../policy/tiny-policy.ts";

const SLOTS = 6;
const CAPACITY = 48;
const STOP = 2;
const SEED = 7;
const engine = compiledEngine({ threads: 1 });
const parameters = tinyParameters();
/** Wide heads have an attention of onnxruntime's own; others are computed by definition. */
const wideModel = { ...tinyModel, headWidth: 16 };

function generator(flat = parameters.flat, model = tinyModel): Generator {
  const decoder = new Decoder(engine, model, flat, { slots: SLOTS, capacity: CAPACITY });
  return new Generator(decoder, model.vocabulary, SLOTS);
}

const settings = { temperature: 1, topP: 1, topK: 0 };
const coinsOf = (name: string) => ({ seed: SEED, episode: hash64(name) });
function request(name: string, prompt: readonly number[], fields: Partial<ReplyRequest> = {}): ReplyRequest {
  return { prompt, coins: coinsOf(name), settings, stops: [STOP], tokensMax: 8, ...fields };
}

/** A reply by the whole forward pass of every prefix, in float64. */
function slowReply(
  before: readonly number[],
  { prompt, coins, coinsFrom = 0, settings, stops, tokensMax }: ReplyRequest,
  model = tinyModel,
  flat = parameters.flat,
): Reply {
  const all = [...before, ...prompt];
  const reply: Reply = { tokens: [], logProbs: [], cut: true };
  while (reply.tokens.length < tokensMax) {
    const logProbs = referenceLogProbs(model, flat, all, settings.temperature || 1).at(-1)!;
    let token = logProbs.indexOf(Math.max(...logProbs));
    if (settings.temperature > 0) {
      const mark = coin(coins, coinsFrom + all.length);
      let passed = 0;
      token = logProbs.findIndex((logProb) => {
        passed += Math.exp(logProb);
        return passed > mark;
      });
    }
    reply.tokens.push(token);
    reply.logProbs.push(logProbs[token]!);
    all.push(token);
    if (stops.includes(token)) return { ...reply, cut: false };
  }
  return reply;
}

test("new parameters between two replies write the second reply, with the caches of the first reply", async () => {
  const replies = async (next: Float32Array | null) => {
    const decoder = new Decoder(engine, tinyModel, parameters.flat, { slots: SLOTS, capacity: CAPACITY });
    const writer = new Generator(decoder, tinyModel.vocabulary, SLOTS);
    writer.open("a");
    const first = await writer.reply("a", request("a", [3, 4, 5]));
    if (next !== null) decoder.setParameters(next.slice());
    return [first, await writer.reply("a", request("a", [6]))];
  };
  const [first, second] = await replies(null);
  expect(await replies(parameters.flat)).toEqual([first!, second!]);
  const [before, after] = await replies(tinyParameters(tinyModel, 5).flat);
  expect(before).toEqual(first!);
  expect(after).not.toEqual(second!);
  expect(after!.logProbs.every((logProb) => Number.isFinite(logProb) && logProb <= 0)).toBe(true);
});

const models: [string, typeof tinyModel][] = [
  ["heads of 4", tinyModel],
  ["heads of 16", wideModel],
];
const cases = models.flatMap(([heads, model]) =>
  [0, 0.5, 1].map((temperature) => [temperature, heads, model] as const),
);
describe.each(cases)("a dialogue written at temperature %p with %s", (temperature, _, model) => {
  test("equals the whole forward pass of every prefix, turn after turn", async () => {
    const { flat } = tinyParameters(model);
    for (const name of ["a", "b", "c", "d"]) {
      const writer = generator(flat, model);
      writer.open(name);
      const all: number[] = [];
      for (const prompt of [[3, 4, 5], [6], [7, 8, 9, 10, 11, 3, 4, 5, 6]]) {
        const asked = request(name, prompt, { settings: { ...settings, temperature } });
        const expected = slowReply(all, asked, model, flat);
        const reply = await writer.reply(name, asked);
        expect({ tokens: reply.tokens, cut: reply.cut }).toEqual({ tokens: expected.tokens, cut: expected.cut });
        expect(farthest(reply.logProbs, expected.logProbs)).toBeLessThan(1e-5);
        all.push(...prompt, ...reply.tokens);
        expect(writer.length(name)).toBe(all.length);
      }
    }
  });
});

describe("a reply", () => {
  test("ends with the stop token, or is cut", async () => {
    const writer = generator();
    const ends: { cut: boolean; last: number; length: number }[] = [];
    for (let i = 0; i < 40; i++) {
      writer.open(`s${i}`);
      const { tokens, logProbs, cut } = await writer.reply(`s${i}`, request(`s${i}`, [3, 4]));
      expect(logProbs.length).toBe(tokens.length);
      expect(logProbs.every((logProb) => logProb <= 0)).toBe(true);
      expect(tokens.slice(0, -1)).not.toContain(STOP);
      ends.push({ cut, last: tokens.at(-1)!, length: tokens.length });
      writer.close(`s${i}`);
    }
    const [cut, ended] = [ends.filter(({ cut }) => cut), ends.filter(({ cut }) => !cut)];
    expect(cut.length * ended.length).toBeGreaterThan(0);
    expect(cut.every(({ length, last }) => length === 8 && last !== STOP)).toBe(true);
    expect(ended.every(({ last }) => last === STOP)).toBe(true);
  });

  test("that stops with its last allowed token was not cut", async () => {
    const writer = generator();
    writer.open("s");
    const asked = request("s", [3, 4], { settings: { temperature: 0, topP: 1, topK: 0 }, tokensMax: 1 });
    const [only] = slowReply([], asked).tokens;
    expect(await writer.reply("s", { ...asked, stops: [only!] })).toMatchObject({ tokens: [only], cut: false });
  });

  test.each([0, 1, 3, 7, 10, 11])(
    "to a sequence of which only %p tokens are kept is one to these alone",
    async (keep) => {
      const writer = generator();
      writer.open("s");
      const all = [3, 4, 5, 6, 7];
      all.push(...(await writer.reply("s", request("s", all, { stops: [], tokensMax: 6 }))).tokens);
      expect(writer.length("s")).toBe(11);
      const asked = request("s", [8, 9], { keep, coinsFrom: 40, stops: [], tokensMax: 5 });
      const expected = slowReply(all.slice(0, keep), asked);
      const reply = await writer.reply("s", asked);
      expect(reply.tokens).toEqual(expected.tokens);
      expect(farthest(reply.logProbs, expected.logProbs)).toBeLessThan(2e-5);
      expect(writer.length("s")).toBe(keep + 7);
      // What follows is appended as ever.
      const before = [...all.slice(0, keep), 8, 9, ...reply.tokens];
      const next = request("s", [10], { coinsFrom: 40, tokensMax: 4 });
      expect((await writer.reply("s", next)).tokens).toEqual(slowReply(before, next).tokens);
    },
  );

  test("may fill a sequence to its last place, because its last token is not fed", async () => {
    const writer = generator();
    writer.open("s");
    const prompt = Array.from({ length: CAPACITY - 3 }, (_, i) => 3 + (i % 9));
    const reply = await writer.reply("s", request("s", prompt, { stops: [], tokensMax: 4 }));
    expect([reply.tokens.length, writer.length("s")]).toEqual([4, CAPACITY + 1]);
  });

  const company = fc.array(
    fc.record({
      prompt: fc.array(fc.integer({ min: 3, max: 11 }), { minLength: 1, maxLength: 10 }),
      tokensMax: fc.integer({ min: 1, max: 6 }),
      rounds: fc.integer({ min: 1, max: 3 }),
      before: fc.boolean(),
    }),
    { maxLength: SLOTS - 1 },
  );
  test.each(models)(
    "with %s is the same bit for bit, whatever is decoded beside it, in whatever slot",
    async (_, model) => {
      const { flat } = tinyParameters(model);
      const dialogue = async (writer: Generator) => {
        const replies: Reply[] = [];
        for (const prompt of [[3, 4, 5], [9, 8], [4]]) replies.push(await writer.reply("me", request("me", prompt)));
        return replies;
      };
      const alone = generator(flat, model);
      alone.open("me");
      const expected = await dialogue(alone);
      await fc.assert(
        fc.asyncProperty(company, async (others) => {
          const writer = generator(flat, model);
          const chatter: Promise<unknown>[] = [];
          const begin = (early: boolean) => {
            for (const [i, { prompt, tokensMax, rounds, before }] of others.entries()) {
              if (before !== early) continue;
              const name = `other ${i}`;
              writer.open(name);
              const talk = async () => {
                for (let round = 0; round < rounds; round++)
                  await writer.reply(name, request(name, prompt, { tokensMax, stops: [] }));
              };
              chatter.push(talk());
            }
          };
          begin(true);
          writer.open("me");
          const mine = dialogue(writer);
          begin(false);
          expect(await mine).toEqual(expected);
          await Promise.all(chatter);
        }),
        { numRuns: 8 },
      );
    },
  );
});

test("a step computes rows for the sequences that write, not for those that wait or were closed", async () => {
  const decoder = new Decoder(engine, tinyModel, parameters.flat, { slots: 24, capacity: CAPACITY });
  const rows: number[] = [];
  const step = decoder.step.bind(decoder);
  decoder.step = (slots, tokens) => {
    // This model's heads are narrow, so a step computes all slots up to the last one.
    rows.push(Math.max(...slots) + 1);
    return step(slots, tokens);
  };
  const writer = new Generator(decoder, tinyModel.vocabulary, 24);
  const names = Array.from({ length: 24 }, (_, i) => `s${i}`);
  for (const name of names) writer.open(name);
  // Every sequence has another prompt, so no two share a cache.
  const promptOf = (name: string) => [3, 3 + (Number(name.slice(1)) % 8), 3 + Math.floor(Number(name.slice(1)) / 8)];
  const reply = (name: string, tokensMax: number) =>
    writer.reply(name, request(name, promptOf(name), { tokensMax, stops: [] }));
  // Twenty write two tokens, and wait for their next prompt; the last four go on.
  const replies = await Promise.all(names.map((name, i) => reply(name, i < 20 ? 2 : 6)));
  expect(rows).toEqual([24, 4, 4, 4, 4]);
  const alone = generator();
  for (const i of [0, 21, 23]) {
    alone.open(`s${i}`);
    const asked = request(`s${i}`, promptOf(`s${i}`), { tokensMax: i < 20 ? 2 : 6, stops: [] });
    expect(await alone.reply(`s${i}`, asked)).toEqual(replies[i]!);
  }
  for (const name of names.slice(0, 12)) writer.close(name);
  rows.length = 0;
  await Promise.all(names.slice(12).map((name) => reply(name, 2)));
  expect(rows).toEqual([12]);
});

test("a sequence that waits goes on in the slot that a step gave it", async () => {
  const writer = generator();
  const names = Array.from({ length: SLOTS }, (_, i) => `s${i}`);
  for (const name of names) writer.open(name);
  const all = await Promise.all(names.map((name) => writer.reply(name, request(name, [3, 4], { tokensMax: 2 }))));
  // The last writes alone, in the first slot; the first waits in the last one.
  await writer.reply(names[5]!, request(names[5]!, [5], { tokensMax: 3, stops: [] }));
  const next = request("s0", [6], { tokensMax: 4, stops: [] });
  expect((await writer.reply("s0", next)).tokens).toEqual(slowReply([3, 4, ...all[0]!.tokens], next).tokens);
});

describe("with a decoder on another thread, whose sequences cannot move,", () => {
  /** All tokens are equally likely. @param broken  the step at which slot 0 gets NaN */
  function elsewhere(broken = -1) {
    const lengths = new Int32Array(SLOTS);
    /** The slots of each step. */
    const fed: number[][] = [];
    let [running, most] = [0, 0];
    const later = async (rows: number) => {
      most = Math.max(most, ++running);
      await new Promise((next) => setImmediate(next));
      running--;
      return new Float32Array(rows * tinyModel.vocabulary);
    };
    const decoder = {
      canMove: false,
      capacity: CAPACITY,
      parametersSet: 0,
      truncate: (slot: number, length: number) => lengths.fill(length, slot, slot + 1),
      length: (slot: number) => lengths[slot]!,
      room: (slot: number) => CAPACITY - lengths[slot]!,
      clear: (slot: number) => lengths.fill(0, slot, slot + 1),
      wipe: (slot: number) => lengths.fill(0, slot, slot + 1),
      append(slots: number[], tokens: number[][]) {
        for (const [i, slot] of slots.entries()) lengths[slot]! += tokens[i]!.length;
        return later(slots.length);
      },
      async step(slots: number[]) {
        fed.push(slots);
        for (const slot of slots) lengths[slot]! += 1;
        const logits = await later(SLOTS);
        if (fed.length === broken) logits.fill(Number.NaN, 0, 1);
        return { logits, places: slots.map((slot) => slot * tinyModel.vocabulary) };
      },
    };
    const writer = new Generator(decoder as unknown as Decoder, tinyModel.vocabulary, SLOTS);
    return { writer, fed, most: () => most };
  }

  test("one step is computed at a time, also if more replies are requested meanwhile", async () => {
    const { writer, most } = elsewhere();
    const ask = (name: string) => {
      writer.open(name);
      return writer.reply(name, request(name, [3], { stops: [], tokensMax: 5 }));
    };
    const first = ask("first");
    await writer.written("first", 1);
    const replies = await Promise.all([first, ask("second"), ask("third")]);
    expect(replies.map(({ tokens }) => tokens.length)).toEqual([5, 5, 5]);
    expect(most()).toBe(1);
  });

  test("a step computes a lone sequence where it is", async () => {
    const { writer, fed } = elsewhere();
    for (let i = 0; i < SLOTS; i++) {
      writer.open(`s${i}`);
      await writer.reply(`s${i}`, request(`s${i}`, [3], { tokensMax: 1 }));
    }
    await writer.reply("s5", request("s5", [3], { stops: [], tokensMax: 2 }));
    expect(fed).toEqual([[5]]);
  });

  test("a reply that failed gets no further tokens, and its sequence is empty", async () => {
    const { writer, fed } = elsewhere(2);
    for (const name of ["bad", "good"]) writer.open(name);
    const bad = writer.reply("bad", request("bad", [3], { stops: [], tokensMax: 6 }));
    const good = writer.reply("good", request("good", [3], { stops: [], tokensMax: 6 }));
    await expect(bad).rejects.toThrow("every logit must be finite");
    expect((await good).tokens.length).toBe(6);
    expect(fed.slice(2)).toEqual([[1], [1], [1]]);
    expect(writer.length("bad")).toBe(0);
  });
});

test("a reply can be read while it is written", async () => {
  const writer = generator();
  writer.open("read");
  const reply = writer.reply("read", request("read", [3, 4], { stops: [] }));
  const read: number[] = [];
  let lengths = 0;
  for (let more = await writer.written("read", 0); more.length > 0; more = await writer.written("read", read.length)) {
    read.push(...more);
    lengths++;
  }
  expect(read).toEqual((await reply).tokens);
  expect(lengths).toBeGreaterThan(1);
  expect(await writer.written("read", 0)).toEqual([]);
  expect(writer.written("other", 0)).rejects.toThrow("sequence other is not open");
});

describe("a sequence", () => {
  test("begins with an empty cache in a slot that another sequence used", async () => {
    const writer = generator();
    const fresh = async (name: string) => {
      writer.open(name);
      const reply = await writer.reply(name, { ...request("same coins", [3, 4, 5]), stops: [] });
      writer.close(name);
      return reply;
    };
    expect(await fresh("first")).toEqual(await fresh("second"));
  });

  test("is refused when its name or every slot is taken", () => {
    const writer = generator();
    for (let i = 0; i < SLOTS; i++) writer.open(`s${i}`);
    expect(() => writer.open("s0")).toThrow(new RangeError("sequence s0 is open already"));
    expect(() => writer.open("more")).toThrow(new RangeError("cannot open more: all 6 slots are taken"));
    writer.close("s3");
    writer.open("more");
    expect(() => writer.close("s3")).toThrow(new RangeError("sequence s3 is not open"));
  });

  test.each([
    [
      "without a prompt",
      { prompt: [] },
      "sequence s: the prompt has 0 tokens and tokensMax is 8; both must be at least 1",
    ],
    [
      "of no tokens",
      { tokensMax: 0 },
      "sequence s: the prompt has 2 tokens and tokensMax is 0; both must be at least 1",
    ],
    [
      "of one token and a half",
      { tokensMax: 1.5 },
      "sequence s: the prompt has 2 tokens and tokensMax is 1.5; both must be at least 1",
    ],
    ["behind more than there is", { keep: 1 }, "sequence s: cannot keep 1 of 0 tokens"],
    [
      "to a token that does not exist",
      { prompt: [3, 12] },
      "sequence s: token 12 is outside the vocabulary of 12 tokens",
    ],
    [
      "that does not fit",
      { tokensMax: 48 },
      "sequence s: 2 tokens of prompt and 48 of reply need room for 49 tokens, but only 48 fit",
    ],
  ])("refuses a reply %s, and still works", async (_, fields, message) => {
    const writer = generator();
    writer.open("s");
    expect(() => writer.reply("s", request("s", [3, 4], fields))).toThrow(new RangeError(message));
    expect((await writer.reply("s", request("s", [3, 4]))).tokens).toEqual(slowReply([], request("s", [3, 4])).tokens);
  });

  test("takes one request at a time, and cannot be closed during a request", async () => {
    const writer = generator();
    writer.open("s");
    const reply = writer.reply("s", request("s", [3, 4]));
    expect(() => writer.reply("s", request("s", [5]))).toThrow(
      new RangeError("sequence s is writing a reply already; wait for it"),
    );
    const message = "cannot close s while a reply to it is being written";
    expect(() => writer.close("s")).toThrow(new RangeError(message));
    await reply;
    writer.close("s");
  });
});

describe("a failure", () => {
  /** NaN wherever token 11 was read, and nowhere else: as attention is causal, other sequences never see it. */
  function poisoned(): Float32Array {
    const flat = parameters.flat.slice();
    flat.fill(Number.NaN, 11 * tinyModel.width, 12 * tinyModel.width);
    return flat;
  }

  test("in one row rejects only the reply of this row", async () => {
    const untied = { ...tinyModel, tiedEmbedding: false };
    const sound = tinyParameters(untied);
    const flat = sound.flat.slice();
    flat.fill(Number.NaN, 11 * untied.width, 12 * untied.width);
    const writer = new Generator(
      new Decoder(engine, untied, flat, { slots: SLOTS, capacity: CAPACITY }),
      untied.vocabulary,
      SLOTS,
    );
    const greedy = { settings: { temperature: 0, topP: 1, topK: 0 }, stops: [], tokensMax: 3 };
    for (const name of ["good", "bad", "later"]) writer.open(name);
    const good = writer.reply("good", request("good", [3, 4], greedy));
    const bad = writer.reply("bad", request("bad", [3, 11], greedy));
    await expect(bad).rejects.toThrow("every logit must be finite");
    expect((await good).tokens.length).toBe(3);
    writer.close("bad");
    expect((await writer.reply("later", request("later", [3, 4], greedy))).tokens).toEqual((await good).tokens);
  });

  test.each(models)("leaves no bad numbers in the slot: %s", async (_, model) => {
    const sound = tinyParameters(model);
    const decoder = new Decoder(
      engine,
      model,
      sound.flat.map(() => Number.NaN),
      { slots: SLOTS, capacity: CAPACITY },
    );
    const writer = new Generator(decoder, model.vocabulary, SLOTS);
    writer.open("bad");
    const bad = writer.reply("bad", request("bad", [3, 4, 5, 6, 7, 8, 9, 10, 11, 3]));
    await expect(bad).rejects.toThrow("every logit must be finite");
    writer.close("bad");
    decoder.setParameters(sound.flat);
    const written = async (writer: Generator) => {
      writer.open("later");
      return writer.reply("later", request("later", [3, 4]));
    };
    expect(await written(writer)).toEqual(await written(generator(sound.flat, model)));
  });

  test("in all rows rejects all replies, and the generator still works", async () => {
    const writer = generator(poisoned());
    for (const name of ["a", "b"]) writer.open(name);
    const replies = ["a", "b"].map((name) => writer.reply(name, request(name, [3, 4])));
    const settled = await Promise.allSettled(replies);
    expect(settled.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    for (const name of ["a", "b"]) writer.close(name);
    for (let i = 0; i < SLOTS; i++) writer.open(`s${i}`);
  });
});
