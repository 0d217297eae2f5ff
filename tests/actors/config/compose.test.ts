/** Settings that other settings choose. */
import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { describeConfig, SECRETS, withoutSecrets } from "../../../actors/config/config.ts";
import { oneValue } from "../../../actors/config/layers.ts";
import { composeWithEnvFile } from "../../../actors/config/preset-files.ts";

const layoutOf = (...prompts: object[]) =>
  composeRunConfig(prompts.map((prompt, i) => ({ source: `layer ${i}`, values: { prompt } }))).prompt.layout;

test.each(["ragen-v1", "ragen-v2"] as const)(
  "compat %s sets its layout, unless the same or a higher layer sets one",
  (compat) => {
    expect(layoutOf({ compat })).toBe(compat);
    expect(layoutOf({ layout: "compact" }, { compat })).toBe(compat);
    expect(layoutOf({ compat, layout: "compact" })).toBe("compact");
    expect(layoutOf({ compat }, { layout: "compact" })).toBe("compact");
  },
);

test("compat strict leaves the layout as it is", () => {
  expect(layoutOf({ layout: "ragen-v2" }, { compat: "strict" })).toBe("ragen-v2");
});

test.each([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN])(
  "names %p as the value that was found",
  (value) => {
    expect(() => composeRunConfig([{ source: "file", values: { learner: { learningRate: value } } }])).toThrow(
      `file: learner.learningRate: Invalid input: expected number, received ${value}, got ${value}`,
    );
  },
);

test("a token that HTTP cannot send is refused", () => {
  const withToken = (token: string) => composeRunConfig([{ source: "file", values: { join: { token } } }]).join.token;
  expect(withToken("a token with spaces")).toBe("a token with spaces");
  for (const token of ["with a line\nbreak in it", "jenseits von ASCII: ü", " a space before it"])
    expect(() => withToken(token)).toThrow("join.token: takes letters, digits and signs of ASCII in one line");
});

test("an update and a validation have at most a million episodes", () => {
  const composed = (values: Record<string, Record<string, number>>) => composeRunConfig([{ source: "file", values }]);
  const apart = { validate: { episodes: 1_000_000, groupSize: 1, firstSeed: 100_000_000 } };
  expect(composed({ ...apart, rollout: { groupSize: 62_500 } }).rollout.groupSize).toBe(62_500);
  expect(() => composed({ ...apart, rollout: { groupSize: 62_501 } })).toThrow(
    "rollout.groupSize: rollout.groupSize times rollout.groups makes 1000016 episodes; at most 1000000 are allowed; lower one of them",
  );
  expect(() => composed({ validate: { groupSize: 2 ** 32 } })).toThrow(
    "validate.groupSize: validate.groupSize times validate.episodes makes 1099511627776 episodes; at most 1000000 are allowed; lower one of them",
  );
});

test("no token is stored, shown, or repeated in an error", () => {
  const paths = ["metrics.token", "transport.token", "join.token", "join.samplerToken", "join.envServerToken"];
  expect([...SECRETS]).toEqual(paths);
  const layers = paths.map((path, i) => oneValue("flag", path, `secret-that-is-long-${i}`));
  const config = composeRunConfig(layers);
  expect(JSON.stringify(withoutSecrets(config))).not.toContain("secret-that");
  expect(describeConfig(config)).not.toContain("secret-that");
  for (const path of paths) {
    expect(describeConfig(config)).toContain(`${path} = "(hidden)"`);
    expect(() => composeRunConfig([oneValue("flag", path, "short")])).toThrow(`${path}: Too small`);
    expect(() => composeRunConfig([oneValue("flag", path, "short")])).not.toThrow('"short"');
  }
});

test("a missing key of a mixed env is named, and a layer may not set the digests of modules", () => {
  const composed = (env: Record<string, unknown>) => () => composeRunConfig([{ source: "file", values: { env } }]);
  expect(composed({ mix: [{}] })).toThrow(
    /^file: env\.mix\.0\.tag: Invalid input: expected string, received undefined$/,
  );
  expect(composed({ modules: {} })).toThrow(
    "file: env.modules: commands fill it in; name the module in bunraku.config",
  );
});

test("a chosen env has the budgets of its own file, unless the layer that chose it or a higher one sets others", () => {
  const budgets = (...envs: Record<string, unknown>[]) => {
    const { env } = composeWithEnvFile(envs.map((values, i) => ({ source: `layer ${i}`, values: { env: values } })));
    return [env.turnsMax, env.actionsMax, env.actionsPerTurnMax];
  };
  const preset = { turnsMax: 7, actionsMax: 21, actionsPerTurnMax: 3 };
  expect(budgets(preset, { tag: "Bandit" })).toEqual([1, 1, 1]);
  expect(budgets({ tag: "Bandit" }, preset)).toEqual([7, 21, 3]);
  expect(budgets({ ...preset, tag: "Bandit" })).toEqual([7, 21, 3]);
});
