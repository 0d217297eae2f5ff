/** A demonstration has the tokens of a rollout whose policy gives the demonstrator's replies. */

import { describe, expect, test } from "bun:test";
import { RunError } from "../../../actors/errors.ts";
import { playEpisode } from "../../../actors/play/play-episode.ts";
import type { ContextRules } from "../../../actors/play/transcript.ts";
import type { Messages, PlayedOutcome } from "../../../actors/protocol.ts";
import {
  type DemonstratedEnv,
  type DemonstrationOptions,
  Demonstrations,
  demonstrate,
  explore,
  fromDemonstrator,
  fromRandomPlay,
  type RandomPlay,
} from "../../../actors/training/demonstrations.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import type { SokobanGame } from "../../../envs/sokoban/game.ts";
import { shortestPath } from "../../../envs/sokoban/solve.ts";
import { type EnvTag, openLocal } from "../../../envs/tag.ts";
import type { Sequence } from "../../../model/learn/batch.ts";
import { samplesOf } from "../../../model/learn/sequences.ts";
import { sequence } from "../../../model/rng.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { jsonService } from "../../envs/outside/json-service.ts";
import { aTicket } from "../../fixtures.ts";

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

type Shown = DemonstrationOptions & DemonstratedEnv;
const optionsFor = (name: string, changed: Partial<Shown> = {}): Shown => {
  const env = { tag: envTag(name), rules };
  return { ...env, envs: [env], dialogue: builtinDialogue(tokenizer), context: contextOf({}), ...changed };
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
  const outcome = await playEpisode(aTicket({ episode: "e", env: tag.tag, layoutSeed: seeds, dynamicsSeed: seeds }), {
    rules: { ...context, seed: 1, reasoningWeight: 0, actionsPerTurnMax: { [tag.tag]: rules.actionsPerTurnMax } },
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
  });
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
      const demo = await demonstrate(game, options, skill, sequence(seed, "teacher"), options);
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

test("with compat, a demonstration shows the actions that a rollout shows: at most those that a turn may have", async () => {
  const context = contextOf({ compat: true, layout: "ragen-v1" });
  const options = optionsFor("SimpleSokoban", { context, rules: { ...rules, actionsPerTurnMax: 1 } });
  const demo = await demonstrate(
    openLocal(options.tag, { layout: 100, dynamics: 100 }),
    options,
    skill,
    sequence(1, "x"),
    options,
  );
  expect(samplesOf((await rollout(options, 100, replies(demo))).trajectory)).toEqual(demo);
});

/** Demonstrations by the expert of an env in another language. */
function byExpert(more: { readonly url: string; readonly retriesMax?: number }) {
  const tag = envTag("Remote", { ...more, expert: true });
  const options = optionsFor("Bandit", { tag, envs: [{ tag, rules }] });
  return new Demonstrations(options, fromDemonstrator({ babble: 0, noise: 0 }), boards, 1, 1, "learn");
}

test("an env in another language is imitated by the expert that it names", async () => {
  const closed: unknown[] = [];
  await using server = jsonService(({ path, body }) => {
    if (path === "/health") return { protocol: 1, envs: ["two"] };
    if (path === "/open") return { observation: "which?", expert: "left" };
    if (path === "/close") closed.push(body);
    if (path !== "/step") return {};
    const { step } = body as { step: number };
    const answer = { observation: "and then?", reward: step, done: step === 1, success: step === 1 };
    return { ...answer, expert: step === 0 ? "right" : null };
  });
  const demos = byExpert({ url: server.url });
  const written = replies(await demos.take(1)).map((reply) => tokenizer.decode(reply));
  const reply = (action: string) => `try ${action}</think><answer>${action}</answer><|im_end|>`;
  expect(written).toEqual([reply("left"), reply("right")]);
  expect(closed.length).toBe(1);
});

test("a game that fails in a demonstration is closed", async () => {
  const closed: unknown[] = [];
  await using server = jsonService(({ path, body }) => {
    if (path === "/health") return { protocol: 1, envs: ["two"] };
    if (path === "/open") return { observation: "which?", expert: "left" };
    if (path === "/close") closed.push(body);
    return path === "/step" ? { reward: "none" } : {};
  });
  await expect(byExpert({ url: server.url, retriesMax: 0 }).take(1)).rejects.toThrow("reward");
  expect(closed.length).toBe(1);
});

test("a thought is true: the box that is pushed goes where it says", async () => {
  const options = optionsFor("SimpleSokoban");
  const moves: Record<string, readonly [number, number]> = { Up: [-1, 0], Down: [1, 0], Left: [0, -1], Right: [0, 1] };
  let pushes = 0;
  for (let seed = 100; seed < 130; seed++) {
    const game = openLocal(options.tag, { layout: seed, dynamics: seed });
    const demo = await demonstrate(game, options, { babble: 0, noise: 0 }, sequence(seed, "teacher"), options);
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

test("a batch is played for each batch, so that none but the first waits for the plays of eight", async () => {
  let opened = 0;
  const options = optionsFor("Bandit");
  const tag: EnvTag = {
    ...options.tag,
    open(seeds) {
      opened++;
      return options.tag.open(seeds);
    },
  };
  const demos = new Demonstrations({ ...options, envs: [{ tag, rules }] }, fromDemonstrator(skill), boards, 4, 1, "x");
  const played: number[] = [];
  for (let i = 0; i < 12; i++) {
    const before = opened;
    await demos.next();
    played.push(opened - before);
  }
  expect(played).toEqual([32, ...new Array(11).fill(4)]);
});

test("the envs of a mix are taught in turn", async () => {
  const [sokoban, bandit] = [optionsFor("SimpleSokoban"), optionsFor("Bandit")];
  const mixed = { ...sokoban, envs: [...sokoban.envs, ...bandit.envs] };
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

test("a prompt that does not fit into the context ends the run, because a restarted learner would fail again", async () => {
  const context = contextOf({ overflow: "drop", contextTokensMax: 20, replyTokensMax: 10 });
  const options = optionsFor("SimpleSokoban", { context });
  const stream = new Demonstrations(options, fromDemonstrator(skill), boards, 1, 1, "learn");
  const message = "a prompt of SimpleSokoban leaves no room for a reply in rollout.contextTokensMax, 20; raise it";
  const error = await stream.next().catch((thrown) => thrown);
  expect([error, error.message]).toEqual([expect.any(RunError), message]);
});

test("an env in another language is imitated by plans from its random play; each board is explored once", async () => {
  // A corridor of five cells. The way out is to the left where the layout seed is even, else to the right.
  const places = new Map<string, { at: number; way: number }>();
  const opened: number[] = [];
  await using server = jsonService(({ path, body }) => {
    if (path === "/health") return { protocol: 1, envs: ["corridor"] };
    const { episode, layoutSeed, action } = body as { episode: string; layoutSeed: number; action: string };
    if (path === "/close") return places.delete(episode) ? {} : { error: "not open" };
    if (path === "/open") {
      opened.push(layoutSeed);
      places.set(episode, { at: 2, way: layoutSeed % 2 === 0 ? -1 : 1 });
      return { observation: "cell 2", actions: ["left", "right"] };
    }
    const place = places.get(episode)!;
    place.at = Math.min(4, Math.max(0, place.at + (action === "left" ? -1 : 1)));
    const done = place.at === 2 + 2 * place.way;
    return { observation: `cell ${place.at}`, reward: done ? 1 : -0.1, done, success: done };
  });
  const tag = envTag("Remote", { url: server.url });
  const options = optionsFor("Bandit", { tag, envs: [{ tag, rules }] });
  const random = {
    plays: 12,
    playsMax: 12,
    playActionsMax: 20,
    plannedActions: 0,
    exploreOnce: false,
    demonstrations: 1,
    randomTurns: 0,
    thought: "first-action" as const,
  };
  const demos = new Demonstrations(options, fromRandomPlay(random), { first: 100, count: 2 }, 1, 1, "learn");
  const written = replies(await demos.take(8)).map((reply) => tokenizer.decode(reply));
  const way = (name: string) => `try ${name}</think><answer>${name} || ${name}</answer><|im_end|>`;
  expect(new Set(written)).toEqual(new Set([way("left"), way("right")]));
  expect([opened.length, places.size]).toEqual([2 * 12 + 8, 0]);
  const foreseen = fromRandomPlay({ ...random, thought: "next-observation" });
  const foreseeing = new Demonstrations(options, foreseen, { first: 100, count: 2 }, 1, 1, "learn");
  await expect(foreseeing.take(1)).rejects.toThrow("warmStart.thought is next-observation, which needs an env inside");
  expect(places.size).toBe(0);
});

describe("a demonstration from random play", () => {
  const settings = {
    plays: 60,
    playsMax: 600,
    playActionsMax: 60,
    plannedActions: 0,
    exploreOnce: false,
    demonstrations: 1,
    randomTurns: 0,
    thought: "first-action" as const,
  };
  const stream = (name: string, random: Partial<RandomPlay> = {}, changed: Partial<Shown> = {}) =>
    new Demonstrations(optionsFor(name, changed), fromRandomPlay({ ...settings, ...random }), boards, 4, 1, "x");

  test("follows a plan that wins almost every board of SimpleSokoban, and takes about as long as the solver", async () => {
    const { tag } = optionsFor("SimpleSokoban");
    const solved = await Promise.all(
      Array.from({ length: boards.count }, async (_, i) => {
        const layout = boards.first + i;
        const experience = await explore(tag, layout, settings, sequence(i, "random play"));
        const game = openLocal(tag, { layout, dynamics: 0 });
        const shortest = shortestPath((openLocal(tag, { layout, dynamics: 0 }) as SokobanGame).board)!.length;
        const plan = experience.plan(game, rules.actionsMax, rules.actionsMax);
        const effects = plan.map((action) => (game as SokobanGame).act(action as number));
        return { won: effects.at(-1)?.success ?? false, extra: plan.length - shortest };
      }),
    );
    expect(solved.filter(({ won }) => won).length).toBeGreaterThanOrEqual(0.9 * boards.count);
    const extra = solved.filter(({ won }) => won).map(({ extra }) => extra);
    expect(Math.min(...extra)).toBeGreaterThanOrEqual(0);
    expect(extra.filter((more) => more === 0).length).toBeGreaterThanOrEqual(0.9 * extra.length);
  });

  test("is the same if random play of Sokoban repeats actions whose effects it knows", async () => {
    const { tag } = optionsFor("SimpleSokoban");
    const { deterministicActions: _, ...repeating } = tag;
    const demonstrations = (tag: EnvTag) => stream("SimpleSokoban", {}, { envs: [{ tag, rules }] }).take(20);
    expect(await demonstrations(tag)).toEqual(await demonstrations(repeating));
  });

  test("from ice whose later plays follow the plan so far: two explorations of a board agree more often", async () => {
    const tag = envTag("FrozenLake", { successRate: 0.8 });
    const agreed = async (plannedActions: number) => {
      let same = 0;
      for (let layout = 0; layout < 20; layout++) {
        const plans = await Promise.all(
          ["a", "b"].map(async (name) => {
            const random = { plays: 100, playsMax: 600, playActionsMax: 40, plannedActions };
            const experience = await explore(tag, layout, random, sequence(layout, name));
            return experience.plan(openLocal(tag, { layout, dynamics: 0 }), rules.actionsMax, 2).join();
          }),
        );
        if (plans[0] === plans[1]) same++;
      }
      return same;
    };
    expect(await agreed(0.5)).toBeGreaterThan(await agreed(0));
  });

  test.each([
    [true, 2 ** 20, 1],
    // A single state of 4 actions needs more.
    [true, 200, 8],
    [false, 2 ** 20, 8],
  ])(
    "explores a board once: %p, if its plays fit into %i bytes; 8 demonstrations explore it %i times",
    async (exploreOnce, keptBytesMax, times) => {
      const ice = envTag("FrozenLake", { successRate: 0.8 });
      let opened = 0;
      const open: EnvTag["open"] = (seeds) => {
        opened++;
        return ice.open(seeds);
      };
      const tag = { ...ice, open };
      const random = { ...settings, plays: 200, playsMax: 200, exploreOnce };
      const options = optionsFor("FrozenLake", { tag, envs: [{ tag, rules }] });
      const demos = new Demonstrations(
        options,
        fromRandomPlay(random, keptBytesMax),
        { first: 101, count: 1 },
        1,
        1,
        "x",
      );
      await demos.take(8);
      expect(opened).toBe(times * 200 + 8);
    },
  );

  test("spreads its actions evenly over the turns, and its thoughts name the first action", async () => {
    for (const think of [true, false]) {
      const env = { tag: envTag("SimpleSokoban"), rules: { ...rules, think } };
      const demos = stream("SimpleSokoban", {}, { ...env, envs: [env], context: contextOf({ think }) });
      for (const reply of (await demos.next()).flatMap((demo) => replies([demo]))) {
        expect(tokenizer.decode(reply)).toMatch(
          think ? /^try (\w+)<\/think><answer>\1( \|\| \w+)?<\/answer>/ : /^\w+( \|\| \w+)?<\/answer>/,
        );
      }
    }
  });

  test.each(["SimpleSokoban", "FrozenLake"])("of %s whose thoughts are what the env shows next", async (name) => {
    const demos = await stream(name, { thought: "next-observation", randomTurns: 0 }).take(20);
    let compared = 0;
    for (const { tokens } of demos) {
      const [, ...turns] = tokenizer.decode([...tokens]).split("<think>");
      for (const turn of turns.slice(0, -1)) {
        const thought = turn.slice(0, turn.indexOf("</think>"));
        expect(thought).toMatch(/^\S{16}$/);
        expect(turn.slice(thought.length)).toContain(thought);
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(10);
  });

  test("shows random turns and does not imitate them", async () => {
    const demos = await stream("FrozenLake", { randomTurns: 0.5 }).take(40);
    const ends = demos.map(({ tokens, written }) => {
      const imitated = new Set(written);
      const turns = [...tokens.entries()].filter(([position, token]) => token === END && position > 0);
      return { imitated: turns.filter(([position]) => imitated.has(position)).length, all: turns.length };
    });
    // A turn has two ends: the prompt's, which is never imitated, and the reply's.
    const shown = ends.reduce((sum, { all }) => sum + all / 2, 0);
    const share = ends.reduce((sum, { imitated }) => sum + imitated, 0) / shown;
    expect(Math.abs(share - 0.5)).toBeLessThan(0.12);
  });

  test("of a language game writes its best random text", async () => {
    const options = optionsFor("Countdown", { rules: { ...rules, turnsMax: 1, actionsMax: 1 } });
    const envs = [{ tag: options.tag, rules: options.rules }];
    const few = stream("Countdown", { playActionsMax: 1, plays: 300 }, { ...options, envs });
    for (const demo of await few.take(5)) {
      const text = options.dialogue.replyText(replies([demo])[0]!, "<think>");
      const written = text.replace(/.*<answer>(.*)<\/answer>.*/, "$1");
      const [target] = tokenizer.decode(demo.tokens).match(/\d+(?= = )/) ?? [];
      expect(Number(target)).toBe(Function(`return ${written}`)());
    }
  });

  test("that no play wins ends in one line with the env, the plays and the keys", async () => {
    const text =
      "random play of game_2048 cannot be imitated: none of 2 plays won on any of 200 boards; " +
      "raise warmStart.playsMax or warmStart.playActionsMax, or set warmStart.enabled to false";
    const settings = { plays: 2, playsMax: 2, playActionsMax: 5 };
    await expect(stream("game_2048", settings).next()).rejects.toThrow(new RunError(text));
  });

  test("whose states never come again ends in one line with the env and what to do", async () => {
    const { tag } = optionsFor("SimpleSokoban");
    let opened = 0;
    const open: EnvTag["open"] = (seeds) => {
      const game = tag.open(seeds) as SokobanGame;
      const board = game.render.bind(game);
      const number = opened++;
      return Object.assign(game, { render: () => `${number} ${board()}` });
    };
    const noted = { ...tag, open, stateOf: (observation: string) => observation };
    const settings = { plays: 60, playsMax: 60, playActionsMax: 30 };
    const text =
      "random play of SimpleSokoban cannot be imitated: on 200 boards in a row its demonstrations met no state that random play had met; " +
      "let the env show equal states in equal words, give the env a stateOf, or set warmStart.enabled to false";
    const envs = [{ tag: noted as EnvTag, rules }];
    await expect(stream("SimpleSokoban", settings, { envs }).next()).rejects.toThrow(new RunError(text));
  });

  test("gives the loop turns, so that heartbeats are sent meanwhile", async () => {
    let turns = 0;
    const beat = setInterval(() => turns++, 1);
    await stream("SimpleSokoban").next();
    clearInterval(beat);
    expect(turns).toBeGreaterThan(5);
  });
});
