/** Values of keys from the text of flags, and the suggestions for a mistyped key. */
import { expect, test } from "bun:test";
import { runKeys } from "../../../actors/config/config.ts";
import { ConfigError } from "../../../actors/errors.ts";

test.each([
  ["learner.updates", "12", 12],
  ["learner.minutes", "1e2", 100],
  ["learner.minutes", "null", null],
  ["learner.betas", "[0.8,0.9]", [0.8, 0.9]],
  ["env.options", '{"rows":3}', { rows: 3 }],
  ["env.options.rows", "3", 3],
  ["env.options.rows", "null", null],
  ["env.options.name", "plain text", "plain text"],
  ["env.mix.0.tag", "Bandit", "Bandit"],
  ["env.think", "false", false],
])("%s takes the text %p", (path, text, value) => {
  expect(runKeys.value(path, text)).toEqual(value);
});

test.each([
  ["learner.updates", "", 'learner.updates takes integer, got ""'],
  ["learner.updates", " ", 'learner.updates takes integer, got " "'],
  ["learner.learningRate", "Infinity", 'learner.learningRate takes number, got "Infinity"'],
  ["learner.betas", "0.9", 'learner.betas takes a JSON list, got "0.9"'],
  ["env.options", "[1]", 'env.options takes a JSON object, got "[1]"'],
  ["learner", "1", "learner is a section; set one of algorithm, estimator"],
  ["env.mix.first.tag", "A", "unknown key env.mix.first.tag"],
  ["learner.updates.most", "1", "unknown key learner.updates.most"],
  ["learner.toString", "1", "unknown key learner.toString"],
])("%s does not take the text %p", (path, text, fault) => {
  expect(() => runKeys.value(path, text)).toThrow(ConfigError);
  expect(() => runKeys.value(path, text)).toThrow(fault);
});

test("a mistyped key may mean one with its last name in another section, or nearly that name", () => {
  expect(runKeys.nearest("model.gammaTurn")).toBe("learner.gammaTurn");
  expect(runKeys.nearest("gradClp")).toBe("learner.gradClip");
  expect(runKeys.nearest("supervisor.transport.gradClp")).toBe("learner.gradClip");
});
