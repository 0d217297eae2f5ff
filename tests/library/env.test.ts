/** Envs that a program defines. */
import { expect, test } from "bun:test";
import { type DiscreteGame, defineEnv } from "../../library/env.ts";

const defined = (tag: string) =>
  defineEnv({ tag, instruction: "Wait.", actionsMax: 3, open: () => ({}) as unknown as DiscreteGame });

test.each(["two words", "lower", "", "Dash-ed", "X"])("the tag %p, which is no name, is refused", (tag) => {
  expect(() => defined(tag)).toThrow(TypeError);
  expect(defined("LongStreet2").tag).toBe("LongStreet2");
});
