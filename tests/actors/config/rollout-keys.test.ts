/** Every key of env, prompt and rollout acts on an episode: from the config, through tickets and a real env server, to its outcome. */

import { describe, expect, test } from "bun:test";
import { EnvServer } from "../../../actors/env-server/env-server.ts";
import { episodeOpener, tagOf } from "../../../actors/play/envs-of-run.ts";
import { playEpisode, rulesOf } from "../../../actors/play/play-episode.ts";
import type { AnswerTo, Messages, PlayedOutcome } from "../../../actors/protocol.ts";
import { trainingTickets } from "../../../actors/training/tickets-to-play.ts";
import type { ReplyRequest } from "../../../model/decode/generate.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { aConfig } from "../../fixtures.ts";
import { FakeClock } from "../fake-clock.ts";

const tokenizer = new Tokenizer();
const dialogue = builtinDialogue(tokenizer);

type Sections = Record<string, Record<string, unknown>>;

/** An update's first episode, by a policy that says the same each turn. @param said  behind the prefix */
async function play(changed: Sections = {}, said = "go</think><answer>Up || Down || Dance</answer>", actions = 1) {
  const config = aConfig(changed);
  const [ticket] = trainingTickets(config, 0, 1, 0, undefined, actions);
  const asked: ReplyRequest[] = [];
  const server = new EnvServer({
    find: (name) => episodeOpener(config, name),
    episodesMax: 1,
    idleMs: 1e6,
    answerMsMax: 1e6,
    clock: new FakeClock(),
    warn: () => {},
  });
  const outcome = await playEpisode(ticket!, {
    rules: rulesOf(config),
    tag: tagOf(config, ticket!.env),
    dialogue,
    weights: { version: 1, digest: "" },
    policy: {
      start: async () => "",
      load: async () => "",
      open: async () => {},
      close: async () => {},
      async reply(_: string, request: ReplyRequest) {
        asked.push(request);
        const all = [...tokenizer.encode(said), ...dialogue.stops];
        const tokens = all.slice(0, request.tokensMax);
        return { tokens, logProbs: tokens.map(() => -1), cut: tokens.length < all.length };
      },
    } as never,
    askEnv: async <A extends Messages["env.open" | "env.step"]>(ask: A) =>
      (await server.answer("s", ask)) as AnswerTo<A>,
    closeEnv: ({ episode }) => server.forget("s", episode),
  });
  await server.stop();
  if (!("trajectory" in outcome)) throw new Error(outcome.detail);
  const prompts = asked.map(({ prompt }) => tokenizer.decode([...prompt]));
  return { outcome: outcome satisfies PlayedOutcome, asked, prompts, ticket: ticket! };
}

/** What a case looks at. */
type Episode = Awaited<ReturnType<typeof play>>;
const turnsOf = ({ outcome }: Episode) => outcome.turns;

const cases: [key: string, changed: Sections, see: (episode: Episode) => unknown, before: unknown, after: unknown][] = [
  ["env.formatPenalty", { env: { formatPenalty: -0.5 } }, (one) => turnsOf(one)[0]!.penalty, -0.1, -0.5],
  [
    "env.turnsMax",
    { env: { turnsMax: 2 } },
    (one) => [turnsOf(one).length, one.outcome.stop],
    [5, "actions"],
    [2, "turns"],
  ],
  [
    "env.actionsMax",
    { env: { actionsMax: 3 } },
    (one) => turnsOf(one).map(({ actions }) => actions.length),
    [2, 2, 2, 2, 2],
    [2, 1],
  ],
  [
    "env.actionsPerTurnMax",
    { env: { actionsPerTurnMax: 1 } },
    (one) => turnsOf(one)[0]!.actions,
    ["Up", "Down"],
    ["Up"],
  ],
  ["env.think", { env: { think: false } }, ({ prompts }) => prompts[0]!.endsWith("<answer>"), false, true],
  [
    "prompt.layout",
    { prompt: { layout: "ragen-v1" }, rollout: { contextTokensMax: 9999 } },
    ({ prompts }) => prompts[0]!.includes("Turn 1:"),
    false,
    true,
  ],
  [
    "prompt.context",
    { prompt: { context: "limited_multi_turn", contextTurnsMax: 1 } },
    ({ outcome }) => outcome.trajectory.contexts.length,
    1,
    5,
  ],
  [
    "prompt.contextTurnsMax",
    { prompt: { context: "limited_multi_turn", contextTurnsMax: 3 } },
    ({ outcome }) => outcome.trajectory.contexts.length,
    1,
    3,
  ],
  [
    "prompt.overflow",
    { prompt: { overflow: "drop" }, rollout: { contextTokensMax: 100 } },
    ({ outcome }) => outcome.turns.at(-1)!.dropped > 0,
    false,
    true,
  ],
  [
    "rollout.contextTokensMax",
    { rollout: { contextTokensMax: 100 } },
    ({ outcome }) => outcome.stop,
    "actions",
    "context",
  ],
  ["rollout.replyTokensMax", { rollout: { replyTokensMax: 4 } }, (one) => turnsOf(one)[0]!.cut, false, true],
  ["rollout.temperature", { rollout: { temperature: 0.7 } }, ({ asked }) => asked[0]!.settings.temperature, 1, 0.7],
  ["rollout.topP", { rollout: { topP: 0.9 } }, ({ asked }) => asked[0]!.settings.topP, 1, 0.9],
  ["rollout.topK", { rollout: { topK: 5 } }, ({ asked }) => asked[0]!.settings.topK, 0, 5],
  ["rollout.firstSeed", { rollout: { firstSeed: 20_001 } }, ({ ticket }) => ticket.layoutSeed, 20_000, 20_001],
  ["seed", { seed: 7 } as never, ({ asked }) => asked[0]!.coins.seed, 10_000, 7],
];

test.each(cases)("%s acts", async (_, changed, see, before, after) => {
  expect(see(await play())).toEqual(before);
  expect(see(await play(changed))).toEqual(after);
});

describe("a turn", () => {
  test("has the ticket's share of the config's actions, and at least one", async () => {
    const actions = async (share: number) =>
      (await play({}, "go</think><answer>Up || Down || Up</answer>", share)).outcome.turns[0]!.actions;
    const all = ["Up", "Down", "Up"];
    expect([await actions(1), await actions(0.5), await actions(0.01)]).toEqual([all, ["Up", "Down"], ["Up"]]);
  });

  test("without an answer that can be read costs the penalty, and is played all the same", async () => {
    const { outcome } = await play({}, "I would rather not");
    expect(outcome.turns.map(({ wellFormed, actions, penalty }) => [wellFormed, actions, penalty])).toEqual(
      Array(5).fill([false, [], -0.1]),
    );
    expect(outcome.stop).toBe("turns");
  });

  test("earns its own reward, which goes into the trajectory at the turn's own end", async () => {
    const { outcome } = await play();
    const { trajectory, turns } = outcome;
    expect(trajectory.turns.map(({ reward, penalty }) => [reward, penalty])).toEqual(
      turns.map(({ reward, penalty }) => [reward, penalty]),
    );
    // Each of its two steps costs 0.1, and a box may be pushed.
    for (const { reward, actions } of turns)
      expect(reward).toBeCloseTo(-0.1 * actions.length + Math.round(reward + 0.2), 9);
    const ends = trajectory.turns.map(({ end }) => end);
    expect(ends).toEqual(
      [...trajectory.tokens.keys()].filter(
        (i) => trajectory.written[i] === 1 && trajectory.tokens[i] === dialogue.stops[0],
      ),
    );
  });

  test("with think off is an answer alone", async () => {
    const { outcome } = await play({ env: { think: false } }, "Up</answer>");
    expect(outcome.turns[0]).toMatchObject({
      reply: "<answer>Up</answer>",
      wellFormed: true,
      actions: ["Up"],
      penalty: 0,
    });
  });
});
