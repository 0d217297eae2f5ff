import { expect, test } from "bun:test";
import { checkEnv } from "bunraku/testing";
import { Street } from "./street.ts";

// Tests, among other things, that equal seeds give equal episodes, that episodes stay within the limits, and that the page can replay the env.
await checkEnv(import.meta.resolve("./street.ts"));

test("Street is won by walking to the house", () => {
  const game = new Street(2, { layout: 1, dynamics: 0 });
  const towards = game.render() === "PG" ? 1 : 0;
  expect(game.act(1 - towards)).toMatchObject({ reward: -0.1, done: false, effective: false });
  expect(game.act(towards)).toMatchObject({ reward: 1, done: true, success: true });
});
