/** Names of algorithms: the settings that a name stands for, the settings that override these, and refused keys that an algorithm does not read. */
import { describe, expect, test } from "bun:test";
import { ALGORITHM_NAMES } from "../../../actors/config/algorithms.ts";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { type RunConfig, runKeys } from "../../../actors/config/config.ts";
import type { Key } from "../../../actors/config/keys.ts";
import { type Layer, oneValue, parseLayer } from "../../../actors/config/layers.ts";
import { ConfigError } from "../../../actors/errors.ts";
import { updateSettings } from "../../../actors/training/update-settings.ts";
import { estimateAdvantages } from "../../../model/learn/advantage/advantage.ts";
import { holdBack } from "../../../model/learn/covariance.ts";
import { filterGroups } from "../../../model/learn/filter.ts";
import type { UpdateSettings } from "../../../model/learn/update/types.ts";

const layer = (yaml: string, source = "mine.yaml") => parseLayer(yaml, source);
const learner = (...layers: readonly Layer[]) => composeRunConfig(layers).learner;
const named = (name: string) => oneValue(`--learner.algorithm=${name}`, "learner.algorithm", name);

describe("an algorithm's name", () => {
  // Estimator and loss of each, by its paper (docs/algorithms.md).
  const ofPapers: readonly (readonly [name: string, expected: object])[] = [
    ["grpo", { estimator: "grpo", loss: "ppo" }],
    ["dr-grpo", { estimator: "dr-grpo", loss: "ppo", aggregation: "seq-mean-token-sum-norm" }],
    ["rloo", { estimator: "rloo", loss: "ppo" }],
    [
      "max-rl",
      {
        estimator: "max-rl",
        loss: "ppo",
        aggregation: "seq-mean-token-sum-norm",
        filter: { strategy: "all" },
      },
    ],
    ["expert-iteration", { estimator: "expert-iteration", loss: "reinforce", filter: { strategy: "all" } }],
    [
      "tpo",
      {
        estimator: "tpo",
        loss: "reinforce",
        aggregation: "seq-mean-token-sum-norm",
        filter: { strategy: "all" },
        entropyCoefficient: 0,
      },
    ],
    ["reinforce++", { estimator: "reinforce++", loss: "ppo" }],
    ["reinforce++-baseline", { estimator: "reinforce++-baseline", loss: "ppo" }],
    ["ppo", { estimator: "gae", loss: "ppo" }],
    ["bi-level-ppo", { estimator: "bi-level-gae", loss: "ppo" }],
    ["gigpo", { estimator: "gigpo", loss: "ppo" }],
    ["hybrid", { estimator: "hybrid", loss: "ppo" }],
    [
      "dapo",
      {
        estimator: "grpo",
        loss: "ppo",
        clipLow: 0.2,
        clipHigh: 0.28,
        aggregation: "token-mean",
        resampleRoundsMax: 3,
        filter: { strategy: "all" },
        overlong: { weight: 1 },
        kl: { coefficient: 0 },
      },
    ],
    [
      "kl-cov",
      { estimator: "grpo", loss: "ppo", clipLow: 1, clipHigh: 1e9, dualClip: null, covariance: { treatment: "kl" } },
    ],
    ["clip-cov", { estimator: "grpo", loss: "ppo", clipLow: 0.2, clipHigh: 0.2, covariance: { treatment: "clip" } }],
    ["gspo", { estimator: "grpo", loss: "gspo", clipLow: 3e-4, clipHigh: 4e-4, aggregation: "seq-mean-token-mean" }],
    ["cispo", { estimator: "grpo", loss: "cispo", clipLow: 1, aggregation: "token-mean" }],
  ];
  test.each(ofPapers)("%s is its paper's estimator and loss", (name, expected) => {
    expect(learner(layer(`learner: {algorithm: ${name}}`))).toMatchObject(expected);
  });

  test("is all of them", () => {
    expect(ofPapers.map(([name]) => name).sort()).toEqual([...ALGORITHM_NAMES].sort());
  });

  test("lies over what was set before it was chosen, and under what is set beside it", () => {
    const preset = layer("learner: {algorithm: ppo, clipHigh: 0.5, lambda: 0.9, learningRate: 0.01}", "preset.yaml");
    expect(learner(preset)).toMatchObject({ estimator: "gae", clipHigh: 0.5 });
    expect(learner(preset, named("gspo"))).toMatchObject({ estimator: "grpo", clipHigh: 4e-4, learningRate: 0.01 });
    expect(learner(preset, layer("learner: {algorithm: gspo, clipHigh: 0.1}"))).toMatchObject({ clipHigh: 0.1 });
    expect(learner(preset, named("gspo"), oneValue("flag", "learner.estimator", "rloo"))).toMatchObject({
      algorithm: "gspo",
      estimator: "rloo",
      loss: "gspo",
    });
  });

  test("takes nothing from one that was named before it", () => {
    expect(learner(layer("learner: {algorithm: dapo}"), named("grpo"))).toEqual(learner(named("grpo")));
  });
});

/** Read where an update's settings are not made: who plays, how long, what moves the weights, how the KL coefficient moves. */
const READ_ELSEWHERE = [
  "algorithm",
  "optimizer",
  "mode",
  "stalenessMax",
  "updates",
  "minutes",
  "kl.control",
  "kl.target",
  "entropyTarget",
  "entropyStep",
  "resampleRoundsMax",
  "gradientAnalysis.everyUpdates",
  "gradientAnalysis.split",
  "gradientAnalysis.groups",
];
const keys = runKeys.all
  .filter(({ path }) => path.startsWith("learner."))
  .filter(({ path }) => !READ_ELSEWHERE.includes(path.slice("learner.".length)));

/** Another value that the key may have. */
function another({ type, default: value }: Key, current: unknown): unknown {
  if (typeof value === "boolean") return !current;
  if (typeof value === "string") return type.split(" | ").findLast((one) => one !== current);
  if (Array.isArray(value)) return [0.25, 0.5];
  if (type.startsWith("integer")) return typeof current === "number" ? current + 2 : 8;
  if (current === null) return 4;
  return current === 0 ? 0.5 : current === 1 ? 0.25 : (current as number) / 2;
}

const at = (tree: unknown, path: string) =>
  path.split(".").reduce<unknown>((node, part) => (node as Record<string, unknown>)[part], tree);

/** Whatever has a switch is on. */
const ON = `{kl: {coefficient: 0.1, estimator: k3+}, overlong: {weight: 1}, importance: {level: token, cap: 4},
  filter: {strategy: top_p, value: 0.5, mode: linear}, rewardNormalization: {method: mean}}`;

const configured = ({ learner: { kl, entropyCoefficient, covariance } }: RunConfig) => ({
  klCoefficient: kl.coefficient,
  entropyCoefficient,
  covariance: covariance.treatment,
});
const marks = { messageStart: 1, system: [2], beforeReplies: true };

test.each([
  ["learner.lossOn", "everything"],
  ["prompt.context", "single_turn"],
])("a lower layer's observation loss has no effect with %s %s", (path, value) => {
  const lower = layer("learner: {observationLoss: 0.1}", "mine.yaml");
  const observationLoss = (layers: readonly Layer[]) => {
    const config = composeRunConfig(layers);
    return updateSettings(config, 1, configured(config), marks).observationLoss;
  };
  expect(observationLoss([lower])).toBe(0.1);
  expect(observationLoss([lower, oneValue("flag", path, value)])).toBe(0);
});

test("a lower layer's treatment of covariance has no effect with the estimator tpo", () => {
  const lower = layer("learner: {covariance: {treatment: kl}}", "mine.yaml");
  const covariance = (layers: readonly Layer[]) => {
    const config = composeRunConfig(layers);
    return updateSettings(config, 1, configured(config), marks).covariance;
  };
  expect(covariance([lower])).toMatchObject({ treatment: "kl" });
  expect(covariance([lower, named("tpo")])).toBeNull();
});

/** The settings, with the values that an update reads of the rules: a rule also has values that only its other kinds read. */
function readOf(settings: UpdateSettings) {
  const read = <R extends object>(rule: R, use: (rule: R) => unknown) => {
    const found: Record<string | symbol, unknown> = {};
    const get = (all: R, key: string | symbol) => {
      found[key] = all[key as keyof R];
      return all[key as keyof R];
    };
    use(new Proxy(rule, { get }));
    return found;
  };
  const { filter, estimator, covariance } = settings;
  const ofRows = { groups: [0, 0, 1, 1], lengths: [2, 2, 2, 2] };
  const rows = { width: 2, written: new Uint8Array(8).fill(1) };
  const rewards = [0, 1, 2, 5];
  const numbers = Float32Array.of(0, 1, 2, 5, 0, 1, 2, 5);
  const batch = {
    ...rows,
    ...ofRows,
    turns: ofRows.groups.map((_, i) => ({ ends: [1], rewards: [rewards[i]!] })),
    values: numbers,
    anchors: ofRows.groups.map(() => ["a"]),
    successes: [false, true, true, true],
    logProbs: [-1, -2, -3, -4],
  };
  return {
    ...settings,
    filter: read(filter, (rule) => filterGroups({ ...ofRows, rewards, entropies: rewards }, rule)),
    estimator: read(estimator, (rule) => estimateAdvantages(batch, rule)),
    covariance: covariance && read(covariance, (rule) => holdBack(rows, numbers, Float64Array.from(numbers), rule)),
  };
}

test.each(ALGORITHM_NAMES)("the settings of an update with %s can be sent to the trainer's thread", (name) => {
  const config = composeRunConfig([named(name)]);
  const settings = updateSettings(config, 1, configured(config), marks);
  expect(structuredClone(settings)).toEqual(settings);
});

describe.each(ALGORITHM_NAMES)("with %s", (name) => {
  test.each([
    ["as it is", "{}"],
    ["and everything switched on", ON],
  ])("a key is refused if and only if it would change nothing, %s", (_, yaml) => {
    const below = [layer(`learner: ${yaml}`), named(name)];
    const settings = (layers: readonly Layer[]) => {
      const config = composeRunConfig(layers);
      // Not the first update, where a schedule has not begun.
      return JSON.stringify([1, 2].map((update) => readOf(updateSettings(config, update, configured(config), marks))));
    };
    const before = settings(below);
    const current = composeRunConfig(below);
    for (const key of keys) {
      const set = oneValue("flag", key.path, another(key, at(current, key.path)));
      let fault = "";
      let changed = false;
      try {
        changed = settings([...below, set]) !== before;
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        fault = error.message;
      }
      const refused = fault.startsWith(`flag: ${key.path} is not read`);
      expect({ key: key.path, refused, changed, fault: refused ? "" : fault }).toEqual({
        key: key.path,
        refused: !changed,
        changed,
        fault: "",
      });
    }
  });
});
