import { expect, test } from "bun:test";
import { openEpisode } from "../../../envs/episode.ts";
import { AgentGame, type PlayAgent } from "../../../envs/outside/agent-game.ts";

const started = async (play: PlayAgent) => {
  const game = new AgentGame(null, play);
  await game.start();
  return game;
};

test("questions are observations, actions their answers, and the result is the last effect", async () => {
  const heard: string[] = [];
  const game = await started(async (ask) => {
    heard.push(await ask("first"), await ask("second"));
    return { reward: 3, success: true };
  });
  expect(game.render()).toBe("first");
  expect(await game.act("one")).toMatchObject({ reward: 0, done: false });
  expect(game.render()).toBe("second");
  expect(await game.act("two")).toMatchObject({ reward: 3, done: true, success: true });
  expect(heard).toEqual(["one", "two"]);
  await expect(game.act("three")).rejects.toThrow("this game is over");
});

test("questions asked at once come one after another; those open at the end are dropped", async () => {
  const game = await started(async (ask) => {
    const answers = await Promise.all(["a", "b"].map(ask));
    void ask("too late").catch(() => {});
    return { reward: answers.length, success: answers.join() === "1,2" };
  });
  expect([game.render(), (await game.act("1")).done, game.render()]).toEqual(["a", false, "b"]);
  await game.act("2");
  expect(await game.act("3")).toMatchObject({ reward: 2, done: true, success: true });
});

test("a function that throws fails its episode, also before its first question", async () => {
  const throwing = async () => {
    throw new Error("no key");
  };
  await expect(started(throwing)).rejects.toThrow("no key");
  await expect(started(async () => ({ reward: 1, success: true }))).rejects.toThrow("without a question");
  const game = await started(async (ask) => {
    await ask("q");
    return throwing();
  });
  await expect(game.act("a")).rejects.toThrow("no key");
});

test("closing stops the function", async () => {
  const seen = Promise.withResolvers<unknown[]>();
  const game = await started(async (ask, signal) => {
    const first = await ask("q").catch((error: Error) => error.message);
    const second = await ask("again").catch((error: Error) => error.message);
    seen.resolve([first, second, signal.aborted]);
    return { reward: 1, success: true };
  });
  await game.close();
  expect(await seen.promise).toEqual(["the episode is over", "the episode is over", true]);
  await expect(game.act("late")).rejects.toThrow("the episode is over");
});

test("an answer is one action, separators included; a reply without one leaves the question open", async () => {
  const rules = { turnsMax: 9, actionsMax: 9, actionsPerTurnMax: 5, formatPenalty: -0.1, think: false };
  const game = new AgentGame(null, async (ask) => ({ reward: 0, success: (await ask("q")) === "a || b" }));
  const episode = await openEpisode(game, rules);
  expect(await episode.step("<answer></answer>")).toMatchObject({ observation: "q", penalty: -0.1, ending: null });
  expect(await episode.step("<answer>a || b</answer>")).toMatchObject({ actions: ["a || b"], ending: "success" });
});
