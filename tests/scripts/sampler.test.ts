import { expect, test } from "bun:test";
import { commandHere } from "./command.ts";

test.each([
  ["sampler", "--slots"],
  ["sampler", "--threads"],
  ["env-server", "--episodes"],
])("%s %s 0 is refused before it connects", async (name, flag) => {
  const { code, err } = await commandHere([name, "--join", "ws://127.0.0.1:1", flag, "0"]);
  expect([code, err]).toEqual([2, `error: ${flag} takes 1 or more, got 0\n`]);
});
