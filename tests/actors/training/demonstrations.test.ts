/** A demonstration has the tokens of a rollout whose policy gives the demonstrator's replies. */
import { describe, expect, test } from "bun:test";
import { RunError } from "../../../actors/errors.ts";
import { playEpisode } from "../../../actors/play/play-episode.ts";
import type { ContextRules } from "../../../actors/play/transcript.ts";
import type { Messages, PlayedOutcome } from "../../../actors/protocol.ts";
import {
  type DemonstrationOptions,
  Demonstrations,
  demonstrate,
  fromDemonstrator,
  fromRandomPlay,
  type Lesson,
} from "../../../actors/training/demonstrations.ts";
import { bestRandomReplies } from "../../../actors/training/random-play.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import { openLocal } from "../../../envs/tag.ts";
import type { Sequence } from "../../../model/learn/batch.ts";
import { samplesOf } from "../../../model/learn/sequences.ts";
import { sequence } from "../../../model/rng.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const END = tokenizer.id("<|im_end|>");
const rules = { turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5, formatPenalty: -0.1, think: true };
const boards = { first: 100, count: 50 };
const skill = { babble: 0.3, noise: 0.2 };

const contextOf = (changed: Partial<ContextRules>): ContextRules => ({
  layout: "compact",
  compat: false,
  think: true,
  context: "full",
  contextTurnsMax: null,
  overflow: "stop",
  replyTokensMax: 10_000,
  contextTokensMax: 100_000,
  ...changed,
});

type Shown = DemonstrationOptions & Lesson;
const optionsFor = (name: string, changed: Partial<Shown> = {}): Shown => {
  const lesson = { tag: envTag(name), rules };
  return { ...lesson, lessons: [lesson], dialogue: builtinDialogue(tokenizer), context: contextOf({}), ...changed };
};

/** The written tokens, reply by reply. */
function replies(demo: readonly Sequence[]): number[][] {
  const all: number[][] = [[]];
  for (const { tokens, written } of demo) {
    for (const position of written) {
      all.at(-1)!.push(tokens[position]!);
      if (tokens[position] === END) all.push([]);
    }
  }
  expect(all.pop()).toEqual([]);
  return all;
}

/** The same episode as a rollout whose policy writes these tokens. */
async function rollout({ tag, rules, context }: Shown, seeds: number, written: number[][]) {
  const env = openEpisode(openLocal(tag, { layout: seeds, dynamics: seeds }), rules);
  let turn = 0;
  const outcome = await playEpisode(
    {
      episode: "e",
      purpose: "train",
      group: 0,
      member: 0,
      env: tag.tag,
      layoutSeed: seeds,
      dynamicsSeed: seeds,
      temperature: 1,
      topP: 1,
      topK: 0,
      version: 1,
      exact: true,
      attempt: 0,
    },
    {
      rules: { ...context, seed: 1, reasoningWeight: 0, actionsPerTurnMax: {} },
      tag,
      dialogue: builtinDialogue(tokenizer),
      weights: { version: 1, digest: "" },
      closeEnv: () => {},
      policy: {
        open: async () => {},
        close: async () => {},
        reply: async () => ({ tokens: written[turn]!, logProbs: written[turn]!.map(() => -1), cut: false }),
      },
      askEnv: async (ask: Messages["env.open" | "env.step"]) => {
        const { opening: observation, actionsLeft } = env;
        const common = { episode: "e" };
        if (ask.type === "env.open") return { type: "env.opened", ...common, observation, actionsLeft } as never;
        return { type: "env.stepped", ...common, turn: turn++, ...env.step(ask.reply) } as never;
      },
    },
  );
  return outcome as PlayedOutcome;
}

const cases = ["SimpleSokoban", "FrozenLake", "Bandit"].flatMap((name) =>
  (["compact", "ragen-v1", "ragen-v2"] as const).flatMap((layout) =>
    [true, false].map((think) => [name, { layout, think }] as [string, Partial<ContextRules>]),
  ),
);
cases.push(["FrozenLake", { context: "limited_multi_turn", contextTurnsMax: 2 }]);
cases.push(["FrozenLake", { context: "single_turn", contextTurnsMax: 3, layout: "ragen-v2" }]);
cases.push(["SimpleSokoban", { overflow: "drop", contextTokensMax: 120, replyTokensMax: 24 }]);
describe.each(cases)("a demonstration of %p, shown as %p", (name, changed) => {
  const context = contextOf(changed);
  const { think } = context;
  const options = optionsFor(name, { context, rules: { ...rules, think } });

  test("has the tokens of a rollout, and only the demonstrator's are written", async () => {
    for (let seed = 100; seed < 110; seed++) {
      const game = openLocal(options.tag, { layout: seed, dynamics: seed });
      const demo = demonstrate(game, options, skill, sequence(seed, "teacher"), options);
      const written = replies(demo);
      const outcome = await rollout(options, seed, written);
      expect(samplesOf(outcome.trajectory)).toEqual(demo);
      expect(outcome.turns.every(({ wellFormed, penalty }) => wellFormed && penalty === 0)).toBe(true);
      for (const reply of written) {
        const text = tokenizer.decode(reply);
        expect(text).toMatch(
          think ? /^\w+ \w+<\/think><answer>[^<]+<\/answer><\|im_end\|>$/ : /^[^<]+<\/answer><\|im_end\|>$/,
        );
        expect(tokenizer.encode(text.replace("<|im_end|>", ""))).toEqual(reply.slice(0, -1));
      }
    }
  });
});

test("a thought is true: the box that is pushed goes where it says", () => {
  const options = optionsFor("SimpleSokoban");
  const moves: Record<string, readonly [number, number]> = { Up: [-1, 0], Down: [1, 0], Left: [0, -1], Right: [0, 1] };
  let pushes = 0;
  for (let seed = 100; seed < 130; seed++) {
    const game = openLocal(options.tag, { layout: seed, dynamics: seed });
    const demo = demonstrate(game, options, { babble: 0, noise: 0 }, sequence(seed, "teacher"), options);
    const env = openEpisode(openLocal(options.tag, { layout: seed, dynamics: seed }), rules);
    let board = env.opening;
    for (const reply of replies(demo)) {
      const text = `<think>${tokenizer.decode(reply).replace("<|im_end|>", "")}`;
      const box = (of: string) => {
        const rows = of.split("\n");
        const row = rows.findIndex((line) => /[X√]/.test(line));
        return row === -1 ? null : ([row, rows[row]!.search(/[X√]/)] as const);
      };
      const before = box(board)!;
      board = env.step(text).observation;
      const after = box(board)!;
      if (before.join() === after.join()) continue;
      const [, direction] = /^<think>push (\w+)/.exec(text)!;
      // One or more steps, all of them that way.
      expect([Math.sign(after[0] - before[0]), Math.sign(after[1] - before[1])]).toEqual([...moves[direction!]!]);
      pushes++;
    }
  }
  expect(pushes).toBeGreaterThan(40);
});

/** Batches of a stream. */
async function next(demos: Demonstrations, batches: number): Promise<Sequence[][]> {
  const drawn: Sequence[][] = [];
  for (let i = 0; i < batches; i++) drawn.push(await demos.next());
  return drawn;
}

describe("a stream of demonstrations", () => {
  const stream = (seed = 1, name = "learn") =>
    new Demonstrations(optionsFor("FrozenLake"), fromDemonstrator(skill), boards, 8, seed, name);

  test("is the same for equal seed and name, and another for others", async () => {
    expect(await next(stream(), 20)).toEqual(await next(stream(), 20));
    expect(await next(stream(2), 1)).not.toEqual(await next(stream(), 1));
    expect(await next(stream(1, "blur"), 1)).not.toEqual(await next(stream(), 1));
  });

  test("gives batches of the asked size, of similar lengths, long and short ones in any order", async () => {
    const batches = await next(stream(), 16);
    expect(batches.every((batch) => batch.length === 8)).toBe(true);
    const means = batches.map((batch) => batch.reduce((sum, { tokens }) => sum + tokens.length, 0) / 8);
    const inside = batches.map((batch) => {
      const lengths = batch.map(({ tokens }) => tokens.length);
      return Math.max(...lengths) - Math.min(...lengths);
    });
    // Together the batches reach much further than any of the eight that were drawn together does on average.
    const reach = Math.max(...means) - Math.min(...means);
    expect(inside.reduce((sum, width) => sum + width, 0) / 16).toBeLessThan(reach / 2);
    expect(means).not.toEqual(means.toSorted((a, b) => a - b));
  });
});

test("the envs of a mix are taught in turn", async () => {
  const [sokoban, bandit] = [optionsFor("SimpleSokoban"), optionsFor("Bandit")];
  const mixed = { ...sokoban, lessons: [...sokoban.lessons, ...bandit.lessons] };
  const demos = new Demonstrations(mixed, fromDemonstrator(skill), boards, 4, 1, "x");
  // What is drawn together, in one order or another.
  const drawn = (await next(demos, 8)).flat();
  const isPull = ({ tokens }: Sequence) => /dragon|phoenix/i.test(tokenizer.decode([...tokens]));
  expect(drawn.filter(isPull).length).toBe(drawn.length / 2);
});

test("an env without a demonstrator cannot be demonstrated", async () => {
  const message = "Countdown has no demonstrator to imitate; set warmStart.imitate to random-play";
  const demos = new Demonstrations(optionsFor("Countdown"), fromDemonstrator(skill), boards, 1, 1, "x");
  await expect(demos.next()).rejects.toThrow(new Error(message));
});

describe("random play", () => {
  const stream = (name: string, bestOf: number, changed: Partial<Shown> = {}) =>
    new Demonstrations(optionsFor(name, changed), fromRandomPlay(bestOf), boards, 4, 1, "x");
  const { tag } = optionsFor("SimpleSokoban");
  /** For every board the best of so many random plays, played again; null where none won. */
  const played = (bestOf: number) =>
    Array.from({ length: 60 }, (_, i) => {
      const seeds = { layout: 100 + i, dynamics: i };
      const written = bestRandomReplies({ tag, rules }, seeds, bestOf, sequence(i, "random play"));
      if (written === null) return null;
      const env = openEpisode(openLocal(tag, seeds), rules);
      const turns = written.map((reply) => env.step(reply));
      const reward = turns.reduce((sum, turn) => sum + turn.reward, 0);
      return { success: turns.at(-1)!.success, ending: turns.at(-1)!.ending, reward };
    });

  test("of which the best is kept: it wins whenever it is there, and earns more the more plays are compared", () => {
    const [few, many] = [played(4), played(100)];
    const won = many.filter((one) => one !== null);
    expect(won.length).toBeGreaterThan(30);
    expect(won.length).toBeGreaterThan(few.filter((one) => one !== null).length);
    expect(won.every(({ success }) => success)).toBe(true);
    const gains = many.flatMap((one, i) => (one === null || few[i] == null ? [] : [one.reward - few[i].reward]));
    expect(Math.min(...gains)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...gains)).toBeGreaterThan(0);
  });

  test("of a single episode is kept whether it won or not, and is always over", () => {
    const all = played(1).filter((one) => one !== null);
    expect(all.length).toBe(60);
    const wins = all.filter(({ success }) => success).length;
    expect([wins > 2, wins < 30]).toEqual([true, true]);
    expect(all.every(({ ending }) => ending !== null)).toBe(true);
  });

  test("is written as a policy's replies, with thoughts that name the first action", async () => {
    for (const think of [true, false]) {
      const lesson = { tag, rules: { ...rules, think } };
      const demos = stream("SimpleSokoban", 48, { ...lesson, lessons: [lesson], context: contextOf({ think }) });
      for (const reply of (await demos.next()).flatMap((demo) => replies([demo]))) {
        expect(tokenizer.decode(reply)).toMatch(
          think ? /^try (\w+)<\/think><answer>\1( \|\| \w+)*<\/answer>/ : /^\w+( \|\| \w+)*<\/answer>/,
        );
      }
    }
  });

  test("that never wins ends in one line with the env, the plays and the key", async () => {
    const lost = "random play of game_2048 cannot be imitated: none of 2 plays won on any of 200 boards; ";
    const error = new RunError(`${lost}raise warmStart.bestOf, or set it to 1 to imitate losses too`);
    await expect(stream("game_2048", 2).next()).rejects.toThrow(error);
  });

  test("of an env without a list of actions is refused", async () => {
    const text =
      "random plays of Countdown cannot be imitated: it has no list of actions; set warmStart.enabled to false";
    await expect(stream("Countdown", 2).next()).rejects.toThrow(new RunError(text));
  });

  test("gives the loop turns, so that heartbeats are sent meanwhile", async () => {
    let turns = 0;
    const beat = setInterval(() => turns++, 1);
    await stream("SimpleSokoban", 200).next();
    clearInterval(beat);
    expect(turns).toBeGreaterThan(5);
  });
});
