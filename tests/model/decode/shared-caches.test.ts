/** Sequences with equal tokens share a cache: what the decoder then computes, and that every reply stays the same, bit for bit. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Decoder } from "../../../model/decode/decoder.ts";
import { Generator, type Reply } from "../../../model/decode/generate.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { hash64 } from "../../../model/rng.ts";
import { tinyModel, tinyParameters } from "../policy/tiny-policy.ts";

const SLOTS = 6;
const engine = compiledEngine({ threads: 1 });
const { flat } = tinyParameters();

/** A generator, and what its decoder computes: tokens that it appended, and sequences that each step advanced. */
function watched(parameters = flat, model = tinyModel) {
  const decoder = new Decoder(engine, model, parameters, { slots: SLOTS, capacity: 96 });
  const appended: (readonly number[])[] = [];
  const stepped: number[] = [];
  const [append, step] = [decoder.append.bind(decoder), decoder.step.bind(decoder)];
  decoder.append = (slots, tokens) => {
    appended.push(...tokens);
    return append(slots, tokens);
  };
  decoder.step = (slots, tokens) => {
    stepped.push(slots.length);
    return step(slots, tokens);
  };
  return { writer: new Generator(decoder, tinyModel.vocabulary, SLOTS), decoder, appended, stepped };
}

interface Asked {
  readonly prompt: readonly number[];
  readonly tokensMax?: number;
  readonly temperature?: number;
  readonly keep?: number;
}

const ask = (writer: Generator, name: string, { prompt, tokensMax = 4, temperature = 0, keep }: Asked) =>
  writer.reply(name, {
    prompt,
    tokensMax,
    stops: [],
    coins: { seed: 7, episode: hash64(name) },
    settings: { temperature, topP: 1, topK: 0 },
    ...(keep === undefined ? {} : { keep }),
  });

const bitsOf = ({ tokens, logProbs }: Reply) => [tokens, [...new Uint32Array(Float32Array.from(logProbs).buffer)]];

/** The replies to a sequence that has no company. */
async function alone(name: string, turns: readonly Asked[], parameters = flat) {
  const { writer } = watched(parameters);
  writer.open(name);
  const replies: Reply[] = [];
  for (const asked of turns) replies.push(await ask(writer, name, asked));
  return replies.map(bitsOf);
}

test("sequences with equal tokens are computed once, until their tokens differ", async () => {
  const { writer, appended, stepped } = watched();
  const names = ["a", "b", "c"];
  for (const name of names) writer.open(name);
  const turn = (asked: (name: string) => Asked) => Promise.all(names.map((name) => ask(writer, name, asked(name))));
  const replies = [await turn(() => ({ prompt: [3, 4, 5] }))];
  const last = replies[0]![0]!.tokens.at(-1)!;
  replies.push(await turn(() => ({ prompt: [6] })));
  expect(appended).toEqual([
    [3, 4, 5],
    [last, 6],
  ]);
  expect(stepped).toEqual([1, 1, 1, 1, 1, 1]);
  appended.length = stepped.length = 0;
  // c gets another prompt.
  replies.push(await turn((name) => ({ prompt: [name === "c" ? 8 : 7] })));
  expect(appended.map((tokens) => tokens.at(-1))).toEqual([7, 8]);
  expect(stepped).toEqual([2, 2, 2]);
  for (const [i, name] of names.entries()) {
    const turns = [{ prompt: [3, 4, 5] }, { prompt: [6] }, { prompt: [name === "c" ? 8 : 7] }];
    expect(replies.map((turn) => bitsOf(turn[i]!))).toEqual(await alone(name, turns));
  }
});

test("a sequence that gets the same prompt later takes the logits of the first append", async () => {
  const { writer, appended } = watched();
  for (const name of ["early", "late", "other"]) writer.open(name);
  await ask(writer, "early", { prompt: [3, 4], tokensMax: 6 });
  appended.length = 0;
  const late = await ask(writer, "late", { prompt: [3, 4], tokensMax: 6 });
  expect(appended).toEqual([]);
  expect([bitsOf(late)]).toEqual(await alone("late", [{ prompt: [3, 4], tokensMax: 6 }]));
  await ask(writer, "other", { prompt: [3, 5] });
  expect(appended).toEqual([[3, 5]]);
});

test("after new parameters a prompt is computed again", async () => {
  const { writer, decoder, appended } = watched();
  for (const name of ["before", "after"]) writer.open(name);
  await ask(writer, "before", { prompt: [3, 4] });
  const next = tinyParameters(tinyModel, 5).flat;
  decoder.setParameters(next.slice());
  const reply = await ask(writer, "after", { prompt: [3, 4] });
  expect(appended).toHaveLength(2);
  expect([bitsOf(reply)]).toEqual(await alone("after", [{ prompt: [3, 4] }], next));
});

test("all slots hold different sequences after they shared a cache", async () => {
  const { writer } = watched();
  const names = Array.from({ length: SLOTS }, (_, i) => `s${i}`);
  for (const name of names) writer.open(name);
  await Promise.all(names.map((name) => ask(writer, name, { prompt: [3, 4, 5] })));
  const replies = await Promise.all(names.map((name, i) => ask(writer, name, { prompt: [5 + i] })));
  for (const [i, name] of names.entries())
    expect(bitsOf(replies[i]!)).toEqual((await alone(name, [{ prompt: [3, 4, 5] }, { prompt: [5 + i] }]))[1]!);
});

test("a failed reply empties its cache; a sequence that shared it says so", async () => {
  const broken = flat.slice();
  // Token 9 has a row of the embedding that is not a number.
  const { writer } = watched(broken);
  for (const name of ["bad", "twin", "fine"]) writer.open(name);
  await Promise.all(["bad", "twin"].map((name) => ask(writer, name, { prompt: [3, 4], tokensMax: 2 })));
  broken.fill(Number.NaN, 9 * tinyModel.width, 10 * tinyModel.width);
  await expect(ask(writer, "bad", { prompt: [9] })).rejects.toThrow("every logit must be finite");
  expect(() => ask(writer, "twin", { prompt: [4] })).toThrow(
    "sequence twin lost its cache, because a reply with the same tokens failed; close the sequence",
  );
  expect([writer.length("bad"), writer.length("twin")]).toEqual([0, 1]);
  for (const name of ["bad", "twin"]) writer.close(name);
});

describe("a reply in progress fails when its sequence loses the cache", () => {
  const lost = "sequence twin lost its cache, because a reply with the same tokens failed; close the sequence";
  const untied = { ...tinyModel, tiedEmbedding: false };
  const poisoned = tinyParameters(untied).flat.slice();
  // Token 11 has a row of the embedding that is not a number.
  poisoned.fill(Number.NaN, 11 * untied.width, 12 * untied.width);

  test("before the reply's prompt is computed", async () => {
    const { writer, decoder } = watched(poisoned, untied);
    for (const name of ["bad", "twin"]) writer.open(name);
    await Promise.all(["bad", "twin"].map((name) => ask(writer, name, { prompt: [3, 4], tokensMax: 2 })));
    const { append } = decoder;
    const twin = Promise.withResolvers<Reply>();
    decoder.append = (slots, tokens) => {
      decoder.append = append;
      twin.resolve(ask(writer, "twin", { prompt: [4] }));
      return append(slots, tokens);
    };
    await expect(ask(writer, "bad", { prompt: [11] })).rejects.toThrow("every logit must be finite");
    await expect(twin.promise).rejects.toThrow(lost);
    expect(writer.length("twin")).toBe(0);
  });

  test("while the reply's tokens are written", async () => {
    const { writer } = watched(poisoned, untied);
    for (const name of ["bad", "twin"]) writer.open(name);
    const twin = ask(writer, "twin", { prompt: [3, 4], tokensMax: 8 });
    // This reply ends before the twin's. So the next prompt continues the cache that the twin still uses.
    await ask(writer, "bad", { prompt: [3, 4], tokensMax: 2 });
    const bad = ask(writer, "bad", { prompt: [11] });
    expect((await Promise.allSettled([bad, twin])).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    await expect(twin).rejects.toThrow(lost);
    expect(writer.length("twin")).toBe(0);
  });
});

test("a failure of the engine leaves every slot free", async () => {
  const { writer, decoder } = watched();
  const { append } = decoder;
  const names = Array.from({ length: SLOTS }, (_, i) => `s${i}`);
  for (const name of names) writer.open(name);
  const replies = () => Promise.allSettled(names.map((name, i) => ask(writer, name, { prompt: [3 + i] })));
  decoder.append = async () => {
    throw new Error("the engine failed");
  };
  expect((await replies()).map(({ status }) => status)).toEqual(names.map(() => "rejected"));
  decoder.append = append;
  expect((await replies()).map(({ status }) => status)).toEqual(names.map(() => "fulfilled"));
});

const turn = fc.record({
  prompt: fc.constantFrom([3, 4, 5], [6], [6, 7]),
  tokensMax: fc.constantFrom(1, 2, 5),
  temperature: fc.constantFrom(0, 0.3, 1),
  /** Share of the sequence that is kept. */
  share: fc.constantFrom(1, 1, 1, 0.5, 0),
  /** Turns of the event loop before the request. */
  wait: fc.integer({ min: 0, max: 3 }),
});
const dialogues = fc.array(fc.array(turn, { minLength: 1, maxLength: 4 }), { minLength: 2, maxLength: 2 * SLOTS });

test("every reply has the bits of a reply without company, in any order of prompts, ends and kept parts", async () => {
  const lone = watched().writer;
  const { decoder } = watched();
  await fc.assert(
    fc.asyncProperty(dialogues, async (all) => {
      for (let slot = 0; slot < SLOTS; slot++) decoder.clear(slot);
      const writer = new Generator(decoder, tinyModel.vocabulary, SLOTS);
      let free = SLOTS;
      const waiting: (() => void)[] = [];
      const talk = async (name: string, turns: (typeof all)[number], on: Generator) => {
        on.open(name);
        const replies: Reply[] = [];
        for (const { share, wait, ...asked } of turns) {
          for (let i = 0; i < wait; i++) await new Promise((next) => setImmediate(next));
          replies.push(await ask(on, name, { ...asked, keep: Math.floor(share * on.length(name)) }));
        }
        on.close(name);
        return replies.map(bitsOf);
      };
      const together = await Promise.all(
        all.map(async (turns, i) => {
          if (free === 0) await new Promise<void>((next) => waiting.push(next));
          else free--;
          const replies = await talk(`s${i}`, turns, writer);
          const next = waiting.shift();
          if (next === undefined) free++;
          else next();
          return replies;
        }),
      );
      for (const [i, turns] of all.entries()) expect(together[i]!).toEqual(await talk(`s${i}`, turns, lone));
    }),
    { numRuns: 200 },
  );
});
