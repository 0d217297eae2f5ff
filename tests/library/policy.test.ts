/** A saved policy as a program uses it: several calls at once. */
import { beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { Tree } from "../../actors/config/layers.ts";
import { evaluate, loadPolicy } from "../../library/policy.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { trainOnce } from "./trained.ts";

const folder = join(temporaryFolder(), "mine");

beforeAll(() => trainOnce(folder), 60_000);

test("episodes, evaluations and replies at once give what they give one after another", async () => {
  using policy = await loadPolicy(folder, { slots: 2 });
  const reply = () => policy.reply([{ role: "user", content: "1 left" }], { seed: 7 });
  const rewards = async (seed: number) => (await policy.evaluate({ episodes: 3, seed })).get("Bandit")!.meanReward;
  const episode = async (seed: number) => (await policy.episode(null, seed)).turns.map(({ reply }) => reply);
  const alone = [await episode(1), await episode(2), await rewards(5), await rewards(90), await reply()];
  const replies = Array.from({ length: 3 }, reply);
  const [first, ...more] = await Promise.all([
    Promise.all([episode(1), episode(2), rewards(5), rewards(90), reply()]),
    ...replies,
  ]);
  expect(first).toEqual(alone as typeof first);
  expect(new Set(more)).toEqual(new Set([alone.at(-1) as string]));
});

test("policies are loaded at the same time, also if their checkpoints have the same name", async () => {
  const loaded = await Promise.allSettled(Array.from({ length: 6 }, () => loadPolicy(folder)));
  for (const one of loaded) if (one.status === "fulfilled") one.value.close();
  expect(loaded.flatMap((one) => (one.status === "rejected" ? String(one.reason) : []))).toEqual([]);
});

test("a player refuses keys of env that it would not read, and a policy says which key is wrong", async () => {
  const player = (env: Tree) => evaluate("random", { tag: "Bandit", ...env }, { episodes: 1 }).catch(String);
  const text = "a player takes env.options and env.actionsMax only; leave it out";
  expect(await player({ turnsMax: 2 })).toBe(`ConfigError: env.turnsMax: ${text}`);
  expect(await player({ mix: [{ tag: "BanditRev" }] })).toBe(`ConfigError: env.mix: ${text}`);
  using policy = await loadPolicy(folder);
  const refused = (env: Tree) => policy.evaluate({ env }).catch(String);
  expect(await refused({ turns: 2 })).toStartWith('ConfigError: env: Unrecognized key: "turns"');
  expect(await refused({ turnsMax: Number.NaN })).toEndWith(", got NaN");
});

test("an empty token, which would let everybody in, is refused", async () => {
  const refused = loadPolicy(folder, { token: "" }).then((policy) => policy.close(), String);
  expect(await refused).toContain("token is empty, which would let everybody in");
});

test("a policy of the folder that a program runs in has the folder's name", async () => {
  using policy = await loadPolicy(`${folder}/.`);
  expect(policy.name).toBe("mine");
});

test("another env is played with its own budgets, not the one turn of Bandit, and the run's own with the run's", async () => {
  using policy = await loadPolicy(folder);
  const budgets = (env: Tree) => {
    const { turnsMax, actionsMax, actionsPerTurnMax } = policy.evaluated({ env }).env;
    return [turnsMax, actionsMax, actionsPerTurnMax];
  };
  expect(budgets({ tag: "SimpleSokoban" })).toEqual([5, 10, 5]);
  expect(budgets({ tag: "SimpleSokoban", turnsMax: 3 })).toEqual([3, 10, 5]);
  expect(budgets({})).toEqual([1, 1, 1]);
  expect(budgets({ tag: "BanditRev" })).toEqual([1, 1, 1]);
});
