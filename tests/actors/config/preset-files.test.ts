/** Every preset can be run, says what RAGEN's experiment of that name was, and shows flags that exist. */
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { type RunConfig, runKeys } from "../../../actors/config/config.ts";
import { type Layer, merge, oneValue, parseLayer } from "../../../actors/config/layers.ts";

const configs = join(import.meta.dir, "../../../configs");
const textOf = (name: string) => readFileSync(join(configs, `${name}.yaml`), "utf8");
const layerOf = (name: string) => parseLayer(textOf(name), `configs/${name}.yaml`);
const presetNames = readdirSync(configs)
  .filter((file) => file.endsWith(".yaml"))
  .map((file) => file.replace(/\.yaml$/, ""));

/** The config that a preset and flags like --learner.gamma=1 make. */
function preset(name: string, ...flags: readonly string[]): RunConfig {
  const set = flags.map((flag): Layer => {
    const [, path, text] = /^--([\w.]+)=(.+)$/.exec(flag)!;
    return oneValue(flag, path!, runKeys.value(path!, text!));
  });
  const layers = [layerOf(name), ...set];
  const { tag } = merge(layers)["env"] as { tag: string };
  const needs = existsSync(join(configs, "env", `${tag}.yaml`)) ? [layerOf(`env/${tag}`)] : [];
  return composeRunConfig([...needs, ...layers]);
}

/** Lines of flags in a preset's comment. */
const shown = (name: string) => {
  return [...textOf(name).matchAll(/^#.*?((?: ?--[\w.]+=\S+)+)/gm)].map(([, flags]) =>
    flags!
      .trim()
      .split(" ")
      .map((flag) => flag.replace(/[:;,.]+$/, "")),
  );
};

describe("a preset", () => {
  test.each(presetNames)("%s runs, and so does the command in its comment", (name) => {
    expect(() => preset(name)).not.toThrow();
    for (const flags of shown(name)) expect(() => preset(name, ...flags)).not.toThrow();
  });
});

/** RAGEN's own settings, by its configs and scripts: P groups of N, minibatches of 32, and what the paper's name stands for. */
describe("RAGEN's experiments", () => {
  const COMMON = { rollout: { groups: 8, groupSize: 16 }, learner: { minibatch: 32 } };
  const QUARTER = { strategy: "top_ratio", value: 0.25 };
  const SOFTMAX = { strategy: "top_p", value: 0.9, mode: "softmax", metric: "reward_variance", order: "largest" };
  const NUCLEUS = { filter: SOFTMAX, kl: { coefficient: 0 }, clipLow: 0.2, clipHigh: 0.28, entropyCoefficient: 1e-3 };
  test.each([
    ["starpo-ppo", { estimator: "gae", clipHigh: 0.2, filter: { strategy: "all" }, gamma: 1, lambda: 1 }],
    ["starpo-grpo", { estimator: "grpo", clipHigh: 0.2, filter: { strategy: "all" }, kl: { coefficient: 1e-3 } }],
    ["starpo-s", { estimator: "gae", clipHigh: 0.28, filter: QUARTER, kl: { coefficient: 0 } }],
    ["starpo-s-grpo", { estimator: "grpo", clipHigh: 0.28, filter: QUARTER }],
    ["starpo-s-bi-level", { estimator: "bi-level-gae", gammaTurn: 0.95, filter: QUARTER }],
    ["ragen2-ppo", { ...NUCLEUS, estimator: "gae", aggregation: "token-mean" }],
    ["ragen2-grpo", { ...NUCLEUS, estimator: "grpo", aggregation: "seq-mean-token-mean" }],
    ["ragen2-dr-grpo", { ...NUCLEUS, estimator: "dr-grpo", aggregation: "seq-mean-token-sum" }],
    ["ragen2-dapo", { estimator: "grpo", clipHigh: 0.28, resampleRoundsMax: 3, aggregation: "token-mean" }],
  ])("%s", (name, learner) => {
    const config = preset(name);
    expect(config).toMatchObject(COMMON);
    expect(config.learner).toMatchObject(learner as never);
  });

  test("no-think differs from its counterpart in the form of replies alone", () => {
    const { env, ...rest } = preset("starpo-s-no-think");
    const { env: thinking, ...same } = preset("starpo-s");
    expect([env, rest]).toEqual([{ ...thinking, think: false }, same]);
  });

  const ablations = presetNames.filter((name) => name.startsWith("ragen2-filter-"));
  test.each(ablations)("%s differs from RAGEN-2's PPO in its filter alone", (name) => {
    const filters = [preset(name), preset("ragen2-ppo")].map(({ learner }) => learner.filter);
    expect(filters[0]).not.toEqual(filters[1]!);
    const [one, other] = [preset(name), preset("ragen2-ppo")].map((config) => ({
      ...config,
      learner: { ...config.learner, filter: null },
    }));
    expect(one).toEqual(other!);
  });

  test("every metric and every strategy of a filter has a preset", () => {
    const filters = presetNames.map((name) => preset(name).learner.filter);
    const metrics = filters.filter(({ strategy }) => strategy.startsWith("top_p")).map(({ metric }) => metric);
    expect([...new Set(metrics)].sort()).toEqual(
      ["entropy", "entropy_variance", "length", "reward_sum", "reward_variance"].sort() as never,
    );
    expect([...new Set(filters.map(({ strategy }) => strategy))].sort()).toEqual(
      ["all", "min_p", "top_k", "top_p", "top_ratio"].sort() as never,
    );
  });
});
