/** One StarPO update against a float64 reference, and what must not change it. */
import { describe, expect, test } from "bun:test";
import type { Engine } from "../../../../model/engine/engine.ts";
import type { Aggregation } from "../../../../model/learn/aggregation.ts";
import type { PolicyRule } from "../../../../model/learn/loss.ts";
import { Network } from "../../../../model/learn/network.ts";
import type { TrainingEpisode, UpdateSettings } from "../../../../model/learn/update/types.ts";
import { update } from "../../../../model/learn/update/update.ts";
import type { ModelConfig } from "../../../../model/policy/model-config.ts";
import { layParameters } from "../../../../model/policy/parameters.ts";
import { writtenTokens } from "../../../../model/trajectory.ts";
import { figure } from "../../../figure.ts";
import { farthest } from "../../farthest.ts";
import { referenceLogProbs, tinyParameters } from "../../policy/tiny-policy.ts";
import { referenceScores, referenceUpdate } from "./reference-update.ts";
import { criticModel, engine, model, networks, play, rewards, settings, start, updated } from "./stage.ts";

const GSPO = { kind: "gspo", clipLow: 0.05, clipHigh: 0.06 } as const;
const DR_GRPO = { estimator: { kind: "dr-grpo" }, aggregation: "seq-mean-token-sum-norm" } as const;
const withRule = (rule: PolicyRule, aggregation: Aggregation): UpdateSettings => ({
  ...settings,
  aggregation,
  policy: { ...settings.policy, rule },
});

test("refuses a recorded log-probability of NaN, and changes nothing", async () => {
  const { flat } = tinyParameters(model, 1);
  const all = await networks(flat);
  const played = play(flat, rewards, 3);
  played[4]!.trajectory.logProbs[3] = Number.NaN;
  await expect(update(all, played, settings)).rejects.toThrow(
    new RangeError("cannot learn from trajectory 4 of 9: log-probability NaN at token 3"),
  );
  expect(all.parameters.flat).toEqual(flat);
});

describe("an update by StarPO-S with a group-relative baseline", () => {
  // Near enough that no bound of the estimator is reached.
  const far = tinyParameters(model, 2).flat;
  const other = start.map((value, i) => value + (far[i]! - value) / 20);
  const withKl = { ...settings, policy: { ...settings.policy, kl: { estimator: "k3", coefficient: 0.3 } } } as const;
  const cases: [string, UpdateSettings, boolean][] = [
    ["as they are", settings, false],
    ["at temperature 0.7", { ...settings, temperature: 0.7 }, false],
    ["with a KL term to another policy", withKl, false],
    ["with a context for each turn and a KL term", withKl, true],
    ["with k1 in the reward", { ...settings, klInReward: { estimator: "k1", coefficient: 0.2 } }, false],
    [
      "with k1 in the reward of several contexts",
      { ...settings, klInReward: { estimator: "k1", coefficient: 0.2 } },
      true,
    ],
    ["with importance weights of tokens", { ...settings, importance: { level: "token", cap: 1.3 } }, false],
    ["with importance weights of episodes", { ...settings, importance: { level: "sequence", cap: 1.1 } }, true],
    [
      "with every factor on advantages",
      { ...settings, scaling: { softReweight: true, filterLossScaling: "sqrt", lengthWeighting: true, zero: false } },
      false,
    ],
    ["with overlong shaping", { ...settings, overlong: { weight: 0.5, tokensMax: 3, margin: 2 } }, false],
    ["by dr-grpo over the most tokens", { ...settings, ...DR_GRPO }, false],
    ["by rloo over sequences", { ...settings, estimator: { kind: "rloo" }, aggregation: "seq-mean-token-sum" }, false],
    ["by max-rl", { ...settings, estimator: { kind: "max-rl" } }, false],
    [
      "by expert-iteration",
      { ...withRule({ kind: "reinforce" }, "seq-mean-token-mean"), estimator: { kind: "expert-iteration" } },
      false,
    ],
    ["with an observation loss", { ...settings, observationLoss: 0.3 }, false],
    ["with an observation loss, by gspo", { ...withRule(GSPO, "seq-mean-token-mean"), observationLoss: 0.3 }, false],
    ["with KL-Cov", { ...settings, covariance: { treatment: "kl", share: 0.3, coefficient: 0.7 } }, false],
    ["with KL-Cov of one token", { ...settings, covariance: { treatment: "kl", share: 1e-9, coefficient: 5 } }, true],
    [
      "with Clip-Cov of every token between the bounds",
      {
        ...settings,
        covariance: { treatment: "clip", share: 1, bounds: [0.05, 0.5], draw: [1, "draw"] },
      },
      false,
    ],
    ["by tpo", { ...withRule({ kind: "reinforce" }, "seq-mean-token-sum-norm"), estimator: { kind: "tpo" } }, false],
    [
      "by tpo over means of tokens",
      { ...withRule({ kind: "reinforce" }, "seq-mean-token-mean"), estimator: { kind: "tpo" } },
      true,
    ],
    ["by gspo", withRule(GSPO, "seq-mean-token-mean"), false],
    ["by cispo", withRule({ kind: "cispo", clipLow: 1, clipHigh: 0.1 }, "token-mean"), true],
  ];
  test.each(cases)("follows the papers' formulas, %s, from rewards to parameters", async (_, given, forgetful) => {
    const played = play(start, rewards, 3, { temperature: given.temperature, forgetful });
    const all = await networks(start, { reference: other });
    const result = await update(all, played, given);
    const expected = referenceUpdate(model, start, other, played, given);
    expect(expected.kept.map(({ group }) => group)).toEqual([0, 0, 0, 2, 2, 2]);
    if (given === settings) expect(expected.gradientNorm).toBeGreaterThan(given.optimizer.clipNorm);
    expect(result).toMatchObject({ skipped: null, steps: 1, metrics: { keptGroups: 2 / 3 } });
    expect(Math.abs(result.metrics["gradNorm"]! / expected.gradientNorm - 1)).toBeLessThan(1e-5);
    // The step is 1e-2; the difference is float32 rounding.
    expect(farthest(all.parameters.flat, expected.parameters)).toBeLessThan(2e-6);
    expect(farthest(all.parameters.flat, start)).toBeGreaterThan(5e-3);
  });

  test("compares an episode by tpo with its whole group, also where a minibatch splits it", async () => {
    const lossOf = async (minibatch: number) => {
      const { metrics } = await update(await networks(start), play(start, rewards, 3), {
        ...withRule({ kind: "reinforce" }, "seq-mean-token-sum-norm"),
        estimator: { kind: "tpo" },
        optimizer: { ...settings.optimizer, learningRate: 1e-12 },
        minibatch,
      });
      return metrics["policyLoss"]!;
    };
    // Of the 6 episodes that the filter keeps; the policy stays where it is.
    expect(await lossOf(2)).toBeCloseTo(await lossOf(6), 6);
  });

  test("measures the observation loss without its weight, and only where a token of the env follows a reply", async () => {
    const measured = async (observationLoss: number, forgetful: boolean) => {
      const { metrics } = await updated({ observationLoss }, play(start, rewards, 3, { forgetful }));
      return metrics["observationLoss"];
    };
    // Mean cross-entropy of the prompts of the second turns of groups 0 and 2, by the reference's policy.
    const kept = play(start, rewards, 3).filter(({ group }) => group !== 1);
    const losses = kept.flatMap(({ trajectory }) => {
      const [first, second] = trajectory.turns.map(({ end }) => end) as [number, number];
      const scores = referenceLogProbs(model, start, trajectory.tokens);
      const seen = [...trajectory.tokens.keys()].filter((t) => t > first && t < second && trajectory.written[t] === 0);
      return seen.map((t) => -scores[t - 1]![trajectory.tokens[t]!]!);
    });
    const expected = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    expect(await measured(0.3, false)).toBeCloseTo(expected, 5);
    expect(await measured(3, false)).toBeCloseTo(expected, 5);
    expect(await measured(0.3, true)).toBeUndefined();
    expect(await measured(0, false)).toBeUndefined();
  });

  test.each([false, true])(
    "on everything is one whose every token was written, ratios of prompts at 1 (contexts: %p)",
    async (forgetful) => {
      const played = play(start, rewards, 3, { forgetful });
      const given = { ...withKl, importance: { level: "token", cap: 1.3 } } as const;
      const all = await networks(start, { reference: other });
      const result = await update(all, played, {
        ...given,
        lossOn: { turns: "all", marks: { messageStart: -1, system: [], beforeReplies: false } },
      });
      const written = played.map(({ trajectory, ...rest }) => {
        const scores = referenceScores(model, start, trajectory, 1);
        const logProbs = trajectory.logProbs.map((own, t) =>
          trajectory.written[t] === 1 || trajectory.contexts.includes(t) ? own : scores[t - 1]![trajectory.tokens[t]!]!,
        );
        const marks = trajectory.written.map((_, t) => Number(!trajectory.contexts.includes(t)));
        return { ...rest, trajectory: { ...trajectory, logProbs, written: marks } };
      });
      const expected = referenceUpdate(model, start, other, written, given);
      expect(farthest(all.parameters.flat, expected.parameters)).toBeLessThan(2e-6);
      const onReplies = await networks(start, { reference: other });
      const { advantages } = await update(onReplies, played, given);
      expect(farthest(onReplies.parameters.flat, expected.parameters)).toBeGreaterThan(1e-3);
      // Only tokens that the policy wrote have an advantage.
      expect(result.advantages.map((one) => one === null)).toEqual(advantages.map((one) => one === null));
      for (const [i, row] of (result.tokenAdvantages ?? []).entries())
        if (row !== null) expect(row).toHaveLength(writtenTokens(played[i]!.trajectory));
    },
  );

  test("returns each trajectory's advantage, and null for dropped trajectories", async () => {
    const { advantages, tokenAdvantages } = await updated({});
    // All tokens of an episode have its advantage.
    expect(tokenAdvantages).toEqual(Array(9).fill(null));
    // Group 0 earned 0.9 (1 - 0.1), 0, 0.5: mean 0.4667, sample std 0.4509.
    const expected = [0.961, -1.0349, 0.0739];
    for (const [i, advantage] of expected.entries()) expect(advantages[i]).toBeCloseTo(advantage, 3);
    expect(advantages.slice(3, 6)).toEqual([null, null, null]);
    expect(advantages.slice(6).every((advantage) => advantage !== null)).toBe(true);
  });

  test("drops replaced groups, and counts them", async () => {
    const given: UpdateSettings = { ...settings, filter: { strategy: "all" }, dropConstant: true };
    const { advantages, metrics } = await update(
      await networks(start),
      play(start, [2, 0, 1, 1, 1, 1, 0, 0, 3], 3),
      given,
    );
    expect(advantages.map((advantage) => advantage === null)).toEqual([0, 0, 0, 1, 1, 1, 0, 0, 0].map(Boolean));
    expect(metrics).toMatchObject({ keptGroups: 2 / 3, zeroStdGroups: 1 / 3 });
    // The first two differ as sums of the same rewards in another order do.
    const none = await updated(given, play(start, [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.6], 3));
    expect(none.skipped).toBe("within every group, replacements included, all rewards are equal");
  });

  test("normalizes over all played episodes, also the episodes that the filter drops", async () => {
    const normalization = { grouping: "batch", method: "mean" } as const;
    const given: UpdateSettings = {
      ...settings,
      normalization,
      estimator: { kind: "reinforce++", gamma: 1, rewardAt: "end" },
    };
    const raw = (await updated(given)).advantages;
    // Group 1, which is dropped, earns 100 more each: all other scores fall by the same, and whitening removes that.
    const richer = rewards.with(3, 100.1).with(4, 100.1).with(5, 100.2);
    const shifted = (await updated(given, play(start, richer, 3))).advantages;
    for (const [i, advantage] of raw.entries()) {
      if (advantage === null) expect(shifted[i]).toBeNull();
      else expect(shifted[i]).toBeCloseTo(advantage, 3);
    }
    // With the standard deviation of all, scores shrink; only then does an unwhitened advantage show it.
    const scaled = {
      ...given,
      normalization: { grouping: "batch", method: "mean_std" },
      estimator: { kind: "dr-grpo" },
    } as const;
    const before = (await updated(scaled)).advantages;
    const after = (await updated(scaled, play(start, richer, 3))).advantages;
    expect(Math.abs(after[0]!)).toBeLessThan(Math.abs(before[0]!) / 10);
  });

  test("measures the gap to the sampler, and the share of capped ratios", async () => {
    const given: UpdateSettings = { ...settings, filter: { strategy: "all" }, importance: { level: "token", cap: 1 } };
    const { metrics } = await updated(given);
    // Recorded log-probabilities lie up to 0.6 off, either way.
    expect(metrics["importance"]).toBeGreaterThan(0.8);
    expect(metrics["importance"]).toBeLessThan(1);
    expect(metrics["importanceCapped"]).toBeGreaterThan(0.2);
    expect(metrics["importanceCapped"]).toBeLessThan(0.8);
    expect(metrics["logProbGap"]).toBeGreaterThan(0.1);
    // 1.3 is no float32; it is a cap all the same.
    const wider = await updated({ ...given, importance: { level: "token", cap: 1.3 } });
    expect(wider.metrics["importanceCapped"]).toBeGreaterThan(0.05);
    expect(wider.metrics["importanceCapped"]).toBeLessThan(metrics["importanceCapped"]!);
  });

  test("does not depend on the episodes that the filter dropped", async () => {
    const played = play(start, rewards, 3);
    const changed = played.map((one) => {
      if (one.group !== 1) return one;
      return { ...one, trajectory: { ...one.trajectory, tokens: one.trajectory.tokens.map((token) => 11 - token) } };
    });
    const [one, two] = [await networks(start), await networks(start)];
    await update(one, played, settings);
    await update(two, changed, settings);
    expect(one.parameters.flat).toEqual(two.parameters.flat);
  });

  test.each([1, 8, 24, 1000])("is the same in micro-batches of %p tokens", async (tokensMax) => {
    const [whole, cut] = [await networks(start), await networks(start)];
    const played = play(start, rewards, 3);
    await update(whole, played, settings);
    await update(cut, played, { ...settings, limits: { tokensMax, lengthMultiple: 1, widthMultiple: 1 } });
    expect(farthest(whole.parameters.flat, cut.parameters.flat)).toBeLessThan(1e-6);
  });

  test("takes a step for each minibatch of each epoch", async () => {
    const all = await networks(start);
    const result = await update(all, play(start, rewards, 3), { ...settings, epochs: 2, minibatch: 4 });
    expect([result.steps, all.policy.optimizerState.step]).toEqual([4, 4]);
  });

  test.each([
    [1, 1],
    [2, 2],
    [4, 3],
    [6, 6],
    [50, 6],
  ])("cut into %p parts takes %p steps on the 6 that were kept", async (parts, steps) => {
    // Of 6 trajectories each of 4 parts has 2, and the fourth has none.
    const result = await updated({ minibatch: { parts } });
    expect(result.steps).toBe(steps);
  });

  test("is skipped, with a reason, where all rewards within each group are equal", async () => {
    const all = await networks(start);
    const result = await update(all, play(start, [1, 1, 1, 0, 0, 0], 3), settings);
    expect(result).toEqual({
      skipped:
        "0 of 2 groups kept: within every group all rewards are equal, so there is nothing to compare; if the task is solved, make it harder; if it is unsolved, give rewards for parts of it",
      advantages: [null, null, null, null, null, null],
      steps: 0,
      metrics: { keptGroups: 0, inGroupStd: 0, zeroStdGroups: 1 },
    });
    expect(all.parameters.flat).toEqual(start);
  });

  test("changes nothing if the gradient is not finite, and the next step is not affected", async () => {
    const [hurt, sound] = [await networks(start), await networks(start)];
    const played = play(start, rewards, 3);
    const at = start.length - 1;
    hurt.parameters.flat[at] = Number.NaN;
    const result = await update(hurt, played, settings);
    expect([result.steps, result.skipped]).toEqual([0, "the gradient's norm is NaN; no step was taken"]);
    expect([...hurt.parameters.flat]).toEqual([...start.with(at, Number.NaN)]);
    expect(hurt.policy.optimizerState.step).toBe(0);
    figure("NaN log-probability, loss or gradient", { "steps taken": result.steps, "parameters changed": 0 });
    hurt.parameters.flat[at] = start[at]!;
    await update(hurt, played, settings);
    await update(sound, played, settings);
    expect(hurt.parameters.flat).toEqual(sound.parameters.flat);
  });

  test("can filter by the policy's entropy", async () => {
    const played = play(start, rewards, 3);
    const entropyOf = ({ trajectory }: TrainingEpisode) => {
      const all = referenceLogProbs(model, start, trajectory.tokens);
      const at = [...trajectory.written.keys()].filter((t) => trajectory.written[t] === 1);
      const each = at.map((t) => -all[t - 1]!.reduce((sum, logProb) => sum + Math.exp(logProb) * logProb, 0));
      return each.reduce((sum, entropy) => sum + entropy, 0) / each.length;
    };
    const byGroup = [0, 1, 2].map((group) =>
      played.filter((one) => one.group === group).reduce((sum, one) => sum + entropyOf(one), 0),
    );
    const ranking = { metric: "entropy", order: "largest", includeZero: true } as const;
    const filter = { strategy: "top_k_abs", value: 1, ...ranking } as const;
    const { advantages } = await updated({ filter }, played);
    const best = byGroup.indexOf(Math.max(...byGroup));
    expect(advantages.map((advantage) => advantage !== null)).toEqual(played.map(({ group }) => group === best));
  });

  test("compiles nothing when only the KL coefficient changes", async () => {
    const names: string[] = [];
    const counting: Engine = {
      ...engine,
      compile(name, build, inputs) {
        names.push(name);
        return engine.compile(name, build, inputs);
      },
    };
    const all = await networks(start, { reference: start.slice() }, counting);
    const with_ = (coefficient: number) => ({
      ...settings,
      policy: { ...settings.policy, kl: { estimator: "k3", coefficient } as const },
    });
    await update(all, play(start, rewards, 3), with_(0.1));
    const compiled = names.length;
    await update(all, play(start, rewards, 3), with_(0.11));
    expect(names.length).toBe(compiled);
  });
});

describe("an update by StarPO with a critic", () => {
  const ppo: UpdateSettings = {
    ...settings,
    filter: { strategy: "all" },
    estimator: { kind: "gae", gamma: 1, lambda: 1, rewardAt: "turns" },
    critic: {
      optimizer: { ...settings.optimizer, learningRate: 0.02, weightDecay: 0, clipNorm: 10 },
      backbone: "separate",
      valueClip: 10,
    },
  };
  /** The first token of the prompt determines the reward. */
  const foretold = () =>
    play(start, Array(16).fill(0), 1).map((one, i) => {
      const tokens = one.trajectory.tokens.with(0, 3 + (i % 2));
      const turns = one.trajectory.turns.map(({ end }, turn) => ({ end, reward: turn * (i % 2), penalty: 0 }));
      return { ...one, trajectory: { ...one.trajectory, tokens, turns } };
    });

  test("trains the critic to predict the reward, and does not change the policy while the critic warms up", async () => {
    const all = await networks(start, { critic: true });
    const explained: number[] = [];
    for (let i = 0; i < 60; i++) {
      const { metrics, steps } = await update(all, foretold(), { ...ppo, trainPolicy: false });
      expect(steps).toBe(0);
      explained.push(metrics["explainedVariance"]!);
    }
    expect(explained[0]).toBeLessThan(0.3);
    expect(explained.at(-1)).toBeGreaterThan(0.95);
    expect(all.parameters.flat).toEqual(start);
  });

  test("returns the advantage of each written token, whose mean is the trajectory's", async () => {
    const all = await networks(start, { critic: true });
    const played = foretold();
    const { advantages, tokenAdvantages } = await update(all, played, ppo);
    for (const [i, own] of tokenAdvantages!.entries()) {
      expect(own!.length).toBe(played[i]!.trajectory.written.reduce((sum, one) => sum + one, 0));
      expect(own!.reduce((sum, one) => sum + one, 0) / own!.length).toBeCloseTo(advantages[i]!, 5);
      expect(new Set(own).size).toBeGreaterThan(1);
    }
  });

  test("trains both, and returns metrics of both", async () => {
    const all = await networks(start, { critic: true });
    const before = all.critic!.parameters.flat.slice();
    const { metrics, steps } = await update(all, foretold(), ppo);
    expect(steps).toBe(1);
    expect(farthest(all.critic!.parameters.flat, before)).toBeGreaterThan(1e-3);
    expect(farthest(all.parameters.flat, start)).toBeGreaterThan(1e-3);
    for (const name of ["valueLoss", "criticGradNorm", "gradNorm", "policyLoss", "entropy"]) {
      expect({ name, finite: Number.isFinite(metrics[name]) }).toEqual({ name, finite: true });
    }
  });

  test.each([1, 3, 16, 50])("pads rows to a multiple of %p without a difference", async (widthMultiple) => {
    const [narrow, wide] = [await networks(start, { critic: true }), await networks(start, { critic: true })];
    const given = {
      ...ppo,
      minibatch: 5,
      policy: { ...ppo.policy, kl: { estimator: "k2", coefficient: 0.1 } as const },
    };
    const other = await Network.create(engine, model, tinyParameters(model, 2));
    await update({ ...narrow, reference: other }, foretold(), given);
    await update({ ...wide, reference: other }, foretold(), { ...given, limits: { ...given.limits, widthMultiple } });
    expect(farthest(narrow.parameters.flat, wide.parameters.flat)).toBeLessThan(1e-6);
    expect(farthest(narrow.critic!.parameters.flat, wide.critic!.parameters.flat)).toBeLessThan(1e-6);
  });

  test("gives an episode of several contexts the same update as one of one context", async () => {
    // A critic of 0: the advantage is the reward from each token on.
    const advantagesOf = async (forgetful: boolean) => {
      const all = await networks(start, { critic: true });
      const critic = await Network.create(engine, criticModel, layParameters(criticModel));
      return (await update({ ...all, critic }, play(start, rewards, 3, { forgetful }), ppo)).advantages;
    };
    const whole = await advantagesOf(false);
    expect(await advantagesOf(true)).toEqual(whole);
    expect(new Set(whole).size).toBeGreaterThan(2);
  });

  test.each(["turns", "end"] as const)("puts rewards, penalized and normalized, at the %s", async (rewardAt) => {
    const normalization = { grouping: "state", method: "mean_std" } as const;
    const given: UpdateSettings = { ...ppo, normalization, estimator: { ...ppo.estimator, rewardAt } as never };
    // A critic of 0: the advantage is the reward still to come, whitened over all tokens.
    const critic = await Network.create(engine, criticModel, layParameters(criticModel));
    const played = play(start, rewards, 3);
    const { advantages } = await update({ ...(await networks(start)), critic }, played, given);
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
    const comes = played.map(({ trajectory: { turns, written }, group }) => {
      const scores = played
        .filter((one) => one.group === group)
        .map(({ trajectory }) => sum(trajectory.turns.map(({ reward, penalty }) => reward + penalty)));
      const center = sum(scores) / scores.length;
      const std = Math.sqrt(sum(scores.map((score) => (score - center) ** 2)) / (scores.length - 1)) + 1e-6;
      const earned = turns.map(({ reward, penalty }) => (reward + penalty) / std);
      // What centring takes away is taken from the last turn.
      earned[1]! -= center / std;
      const lengths = [0, 1].map((k) =>
        written.slice(k === 0 ? 0 : turns[0]!.end + 1, turns[k]!.end + 1).reduce((a, b) => a + b, 0),
      );
      const first = sum(earned);
      return [
        ...new Array<number>(lengths[0]!).fill(first),
        ...new Array<number>(lengths[1]!).fill(rewardAt === "turns" ? earned[1]! : first),
      ];
    });
    const all = comes.flat();
    const center = sum(all) / all.length;
    const std = Math.sqrt(sum(all.map((one) => (one - center) ** 2)) / (all.length - 1) + 1e-8);
    for (const [i, tokens] of comes.entries()) {
      expect(advantages[i]).toBeCloseTo((sum(tokens) / tokens.length - center) / std, 4);
    }
  });

  test("takes one step for both if the critic is a head of the policy's own network", async () => {
    const both: ModelConfig = { ...model, head: "both" };
    const begin = tinyParameters(both).flat;
    const shared: UpdateSettings = { ...ppo, critic: { backbone: "shared", valueClip: 10, coefficient: 0.25 } };
    const moved = async (given: UpdateSettings) => {
      const parameters = layParameters(both, begin.slice());
      const network = await Network.create(engine, both, parameters);
      const { metrics, steps } = await update({ policy: network, critic: network, reference: null }, foretold(), given);
      expect(steps).toBe(1);
      return { flat: parameters.flat, metrics };
    };
    const { flat, metrics } = await moved(shared);
    expect(farthest(flat.slice(start.length), begin.slice(start.length))).toBeGreaterThan(1e-3);
    expect(farthest(flat.slice(0, start.length), begin.slice(0, start.length))).toBeGreaterThan(1e-3);
    expect(metrics["criticGradNorm"]).toBeUndefined();
    // The loss that is reported is the critic's own; only its pull is weighed.
    const heavy = await moved({ ...shared, critic: { backbone: "shared", valueClip: 10, coefficient: 4 } });
    expect(heavy.metrics["valueLoss"]).toBeCloseTo(metrics["valueLoss"]!, 5);
    expect(heavy.metrics["gradNorm"]).toBeGreaterThan(metrics["gradNorm"]!);
  });

  test("needs a critic", async () => {
    const refused = update(await networks(start), foretold(), ppo);
    await expect(refused).rejects.toThrow("gae needs a critic");
  });
});
