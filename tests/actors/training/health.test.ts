/** Which rung of the interventions a verdict takes, when, and what the rung changes. A saved state continues in the same way. */
import { describe, expect, spyOn, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { HealthConfig } from "../../../actors/config/health.ts";
import { parseLayer } from "../../../actors/config/layers.ts";
import {
  checkup,
  checkupOfValidation,
  type Due,
  HEALTH_START,
  type HealthState,
  type Measured,
  measuredOf,
} from "../../../actors/training/health.ts";
import { CONTROL_START, controlAfter, intervened } from "../../../actors/training/interventions.ts";
import { startOfRun } from "../../../actors/training/progress.ts";
import { trainingTickets } from "../../../actors/training/tickets-to-play.ts";
import { type FilterRule, filterGroups } from "../../../model/learn/filter.ts";
import type { UpdateSettings } from "../../../model/learn/update/types.ts";
import { configOf, outcomeOf, Stage } from "./stage.ts";

/** Within thirty updates all groups become constant; ten updates after they began to, success begins to fall. */
const trapped = (update: number): Measured => {
  const left = Math.max(0, 1 - update / 30);
  const success = 0.33 * Math.max(0, Math.min(1, (40 - update) / 30));
  return { success, rewardStd: 2.4 * left, zeroStdShare: 1 - left, groupsKept: 1 };
};

/** Each update's due, by its number, over `updates` updates. */
function dues(config: HealthConfig, updates: number, point = trapped, start: HealthState = HEALTH_START, from = 1) {
  const found: [number, Due][] = [];
  let state = start;
  for (let update = from; update <= updates; update++) {
    const { state: next, due } = checkup(state, point(update), config);
    state = JSON.parse(JSON.stringify(next));
    if (due !== null) found.push([update, due]);
  }
  return { found, state };
}

const rungs = (found: [number, Due][]) =>
  found.map(([update, due]) => [update, due.kind === "rung" ? due.rung : due.kind]);

describe("the ladder", () => {
  const ladder = ["lower-step-size", "raise-entropy", "stop"] as const;

  test("is off by default: the verdict is reported once, and nothing is done", () => {
    const told: string[] = [];
    let state = HEALTH_START;
    for (let update = 1; update <= 40; update++) {
      const one = checkup(state, trapped(update), HealthConfig.parse({}));
      told.push(...one.notices.map(({ good, kind, text }) => `${good} ${kind} ${text.split(":")[0]}`));
      expect(one.due).toBe(null);
      state = one.state;
    }
    expect(told).toEqual(["false health warning", "false health collapsed"]);
    expect(checkup(state, trapped(41), HealthConfig.parse({})).metrics).toEqual({
      "health/verdict": 3,
      "health/interventions": 0,
      "health/rollbacks": 0,
    });
  });

  test("is climbed in order, each rung once, with time to act between them", () => {
    const { found, state } = dues(HealthConfig.parse({ ladder, settleUpdates: 4 }), 40);
    const first = found[0]![0];
    expect(rungs(found)).toEqual([
      [first, "lower-step-size"],
      [first + 4, "raise-entropy"],
      [first + 8, "stop"],
    ]);
    expect(found[0]![1].text).toMatch(
      /^lower-step-size \(rung 1 of 3\): the step size is 0\.5 times the configured step size; collapsed: success fell to /,
    );
    expect(state.control).toEqual({ ...CONTROL_START, stepSize: 0.5, entropy: 0.003 });
  });

  test("may begin at a warning", () => {
    const at = (interveneAt: string) => dues(HealthConfig.parse({ ladder, interveneAt }), 40).found[0]![0];
    expect(at("warning")).toBeLessThan(at("collapsed"));
  });

  test("continues from a saved state as without the break", () => {
    const config = HealthConfig.parse({ ladder });
    const whole = dues(config, 40);
    const half = dues(config, whole.found[0]![0] + 2);
    const rest = dues(config, 40, trapped, half.state, whole.found[0]![0] + 3);
    expect([...half.found, ...rest.found]).toEqual(whole.found);
    expect(rest.state).toEqual(whole.state);
  });

  test("leaves a run alone that learns", () => {
    // The spread of a coin that comes up right ever more often.
    const learns = (update: number): Measured => {
      const success = Math.min(1, 0.1 + update / 40);
      return { success, rewardStd: 10 * Math.sqrt(success * (1 - success)), groupsKept: 1 };
    };
    expect(dues(HealthConfig.parse({ ladder, interveneAt: "warning" }), 60, learns).found).toEqual([]);
  });
});

describe("early stops", () => {
  test("are obeyed only if they are named", () => {
    const empty = (): Measured => ({ success: 0.2, rewardStd: 1, groupsKept: 0 });
    expect(dues(HealthConfig.parse({ stopEarly: ["reward_variance_collapse"] }), 20, empty).found).toEqual([]);
    expect(dues(HealthConfig.parse({ stopEarly: ["empty_filtered_steps"] }), 5, empty).found).toEqual([
      [5, { kind: "early-stop", text: "empty_filtered_steps: the filter kept no group in 5 updates in a row" }],
    ]);
  });

  /** Kind and tone of the notice of the first thing that is due, and whether it is recorded as the end of the run. */
  const firstDue = (config: object, point: (update: number) => Measured) => {
    let state = HEALTH_START;
    for (let update = 1; update <= 60; update++) {
      const one = checkup(state, point(update), HealthConfig.parse(config));
      state = one.state;
      if (one.due === null) continue;
      const { good, kind } = one.notices.at(-1)!;
      return { good, kind, ends: one.metrics["health/stopped_early"] };
    }
    return null;
  };

  test("have events and metrics of their own, not those of rungs; on a solved task the event is good news", () => {
    const empty = (): Measured => ({ success: 0.2, rewardStd: 1, groupsKept: 0 });
    expect(firstDue({ stopEarly: ["empty_filtered_steps"] }, empty)).toEqual({
      good: false,
      kind: "early-stop",
      ends: 1,
    });
    const [solved] = ends(["solved"], [1, 1]);
    expect(solved).toMatchObject({
      notices: [{ good: true, kind: "early-stop" }],
      metrics: { "health/stopped_early": 1 },
    });
    const rung = { good: false, kind: "intervention" } as const;
    expect(firstDue({ ladder: ["raise-entropy"], stopEarly: [] }, trapped)).toEqual({ ...rung, ends: undefined });
    expect(firstDue({ ladder: ["stop"], stopEarly: [] }, trapped)).toEqual({ ...rung, ends: 1 });
  });

  test("do not mistake a solved task for a dead one", () => {
    const solved = (): Measured => ({ success: 0.95, rewardStd: 0, groupsKept: 0 });
    expect(dues(HealthConfig.parse({ stopEarly: ["empty_filtered_steps"] }), 30, solved).found).toEqual([]);
  });

  /** What ended a run with these validations, each with its number from 1. */
  const ends = (stopEarly: readonly string[], validations: readonly number[]) => {
    let state = HEALTH_START;
    return validations.flatMap((success, i) => {
      const one = checkupOfValidation(state, success, HealthConfig.parse({ stopEarly }));
      state = JSON.parse(JSON.stringify(one.state));
      return one.due === null ? [] : [{ validation: i + 1, ...one }];
    });
  };
  const endsAt = (...given: Parameters<typeof ends>) => ends(...given).map(({ validation }) => validation);

  test("come with the validation that gives them", () => {
    expect(endsAt(["low_validation_success"], [0, 0, 0, 0.1, 0, 0, 0, 0, 0])).toEqual([9]);
    expect(endsAt([], [0, 0, 0, 0, 0, 1, 1])).toEqual([]);
  });

  test("count again from 0 in a run that is prolonged after a stop", () => {
    expect(endsAt(["solved"], [1, 1, 1, 1, 0.5, 1, 1])).toEqual([2, 4, 7]);
  });
});

describe("a config", () => {
  const faults = (yaml: string) => {
    try {
      return composeRunConfig([parseLayer(yaml, "mine.yaml")]) && "";
    } catch (error) {
      return (error as Error).message;
    }
  };

  test.each([
    ["health: {settleUpdates: 2}", "health.settleUpdates is not read while health.ladder is empty; leave it out"],
    [
      "health: {collapse: {samples: 8}}",
      "health.collapse.samples is not read while health.collapse.everyUpdates is 0; leave it out",
    ],
    [
      "health: {stopEarly: [empty_filtered_steps], stops: {baselineUpdates: 2}}",
      "health.stops.baselineUpdates is not read without reward_variance_collapse in health.stopEarly; leave it out",
    ],
    [
      "env: {think: false}\nhealth: {collapse: {everyUpdates: 5}}",
      "health.collapse.everyUpdates: env.think is false, so there are no thoughts to compare; set it to 0",
    ],
    [
      "env: {think: false, reasoningWeight: 1}",
      "env.reasoningWeight: env.think is false, so there are no thoughts to judge; set it to 0",
    ],
    [
      "health: {ladder: [fresh-rollouts]}",
      "health.ladder: an update takes one gradient step already, so fresh-rollouts would change nothing; leave it out, or set learner.epochs, learner.minibatch or rollout.onlineK",
    ],
    [
      "health: {ladder: [tighten-filter]}\nrollout: {groupSize: 1}\nlearner: {algorithm: ppo, filter: {strategy: all}}",
      "health.ladder: this run has no filter, so tighten-filter ranks groups by the std of their rewards, and a group of 1 has no std; leave it out, or raise rollout.groupSize",
    ],
    [
      "env: {actionsPerTurnMax: 1}\nhealth: {ladder: [fewer-actions]}",
      "health.ladder: a turn has one action already, so fewer-actions would change nothing; leave it out, or raise env.actionsPerTurnMax",
    ],
    [
      "health: {ladder: [kl-cov]}\nlearner: {covariance: {treatment: kl}}",
      "health.ladder: learner.covariance.treatment is kl already, so kl-cov would change nothing; leave it out",
    ],
    [
      "health: {ladder: [clip-cov]}\nlearner: {algorithm: tpo}",
      "health.ladder: the estimator tpo makes new advantages before each step, and no treatment of covariance changes them, so clip-cov would change nothing; leave it out",
    ],
    [
      "learner: {covariance: {treatment: clip, bounds: [2, 2]}}",
      "learner.covariance.bounds: the first must be below the second, got 2 and 2; swap or change them",
    ],
    [
      "env: {tag: Countdown, reasoningWeight: 1}\nwarmStart: {imitate: random-play}",
      "env.reasoningWeight: the env Countdown has no check of thoughts; set it to 0",
    ],
  ])("%s is refused", (yaml, fault) => {
    expect(faults(yaml)).toBe(`mine.yaml: ${fault}`);
  });

  test("may set what only its rung against covariance will read", () => {
    const rungs = "health: {ladder: [clip-cov, kl-cov]}";
    expect(faults(`${rungs}\nlearner: {covariance: {share: 0.1, bounds: [0, 1], coefficient: 2}}`)).toBe("");
  });

  test("may set how a divergence is estimated that only its ladder will weigh", () => {
    expect(faults("health: {ladder: [raise-kl]}\nlearner: {kl: {estimator: k2}}")).toBe("");
  });
});

test("an update's metrics are measured as far as they are known", () => {
  expect(measuredOf({ "train/grad_norm": 1 })).toBe(null);
  const values = {
    "train/success": 0.5,
    "train/in_group_std": 2,
    "train/format_errors": 0.25,
    "train/kept_groups": 0.5,
  };
  expect(measuredOf(values)).toEqual({ success: 0.5, rewardStd: 2, validity: 0.75, groupsKept: 0.5 });
  expect(measuredOf({ ...values, "collapse/mi_estimate": 0.1 })).toMatchObject({ mutualInformation: 0.1 });
});

describe("a rung", () => {
  const settings = (filter: FilterRule) =>
    ({
      filter,
      policy: { entropyCoefficient: 0.001 },
      optimizer: { learningRate: 0.1 },
    }) as unknown as UpdateSettings;
  const filterAfter = (filter: FilterRule, rounds: number, groups = 16) => {
    let control = CONTROL_START;
    for (let round = 0; round < rounds; round++) ({ control } = controlAfter("tighten-filter", control));
    return intervened(settings(filter), control, groups).filter;
  };

  test("tightens a filter, and leaves at least one group", () => {
    /** Of these groups; later ones have a larger std. */
    const keptOf = (count: number, filter: FilterRule) => {
      const groups = Array.from({ length: 2 * count }, (_, i) => i >> 1);
      return filterGroups({ groups, rewards: groups.map((group, i) => (i % 2) * (1 + group)) }, filter).kept;
    };
    expect(keptOf(4, filterAfter({ strategy: "all" }, 1))).toEqual([2, 3]);
    expect(keptOf(4, filterAfter({ strategy: "top_ratio", value: 1, order: "smallest" }, 1))).toEqual([0, 1]);
    // A filter may be given fewer groups than an update plays: only those that dynamic sampling leaves, or that are not stale.
    for (const count of [1, 3, 16, 49])
      expect(keptOf(count, filterAfter({ strategy: "top_ratio", value: 0.25, order: "largest" }, 20))).toEqual([
        count - 1,
      ]);
    expect(keptOf(1, filterAfter({ strategy: "all" }, 1))).toEqual([0]);
    const ranked = { metric: "reward_variance", order: "largest", includeZero: true } as const;
    expect(filterAfter({ strategy: "top_k_abs", value: 3, ...ranked }, 1)).toMatchObject({ value: 1 });
    expect(filterAfter({ strategy: "min_p", value: 0.2, ...ranked }, 1)).toMatchObject({ value: 0.6 });
    expect(filterAfter({ strategy: "top_p", value: 0.8, ...ranked, mode: "linear" }, 2)).toMatchObject({
      value: 0.2,
    });
  });

  test("not taken changes nothing", () => {
    const before = settings({ strategy: "top_ratio", value: 0.25, order: "largest" });
    expect(intervened(before, CONTROL_START, 16)).toEqual(before);
  });

  test("takes fresh rollouts for every gradient step", () => {
    const before = { ...settings({ strategy: "all" }), epochs: 4, minibatch: { parts: 2 } };
    const { control } = controlAfter("fresh-rollouts", CONTROL_START);
    expect(intervened(before, control, 16)).toMatchObject({ epochs: 1, minibatch: { parts: 1 } });
  });

  test("halves the actions of a training turn, each time once more, to one at least", () => {
    const config = composeRunConfig([parseLayer("env: {tag: SimpleSokoban, actionsPerTurnMax: 5}", "test")]);
    let control = CONTROL_START;
    const limits: (number | undefined)[] = [];
    for (let taken = 0; taken < 4; taken++) {
      const [ticket] = trainingTickets(config, 0, 1, 0, [{ group: 0, env: "SimpleSokoban" }], control.actions);
      limits.push(ticket!.actionsPerTurnMax);
      ({ control } = controlAfter("fewer-actions", control));
    }
    expect(limits).toEqual([undefined, 2, 1, 1]);
  });

  test("raises entropy and lowers the step size, each time once more", () => {
    let control = CONTROL_START;
    for (const rung of ["raise-entropy", "raise-entropy", "lower-step-size", "lower-step-size"] as const) {
      ({ control } = controlAfter(rung, control));
    }
    const { policy, optimizer } = intervened(settings({ strategy: "all" }), control, 16);
    expect([policy.entropyCoefficient, optimizer.learningRate]).toEqual([0.001 + 2 * 0.003, 0.1 / 4]);
  });
});

const healthOf = ({ warnings, told }: Stage) => [...warnings, ...told].filter((text) => text.startsWith("health: "));

test("a run that is resumed with a bad verdict tells it again, and one that is well does not", async () => {
  const resumedWith = async (verdict: "collapsed" | "solved") => {
    const health = { ...HEALTH_START, verdict };
    const stage = new Stage({}, { ...startOfRun(configOf()), update: 6, before: 0.5, health });
    await stage.training.run();
    return healthOf(stage);
  };
  expect(await resumedWith("collapsed")).toEqual(["health: update 6: collapsed: the verdict from before the resume"]);
  expect(await resumedWith("solved")).toEqual([]);
});

test("a roll-back ends the alarm, and the record at its update", async () => {
  const trap = { startUpdates: 1, patience: 1, spreadShare: 0.95 };
  const stage = new Stage({
    learner: { updates: 5, filter: { strategy: "all" } },
    checkpoint: { everyUpdates: 1 },
    validate: { episodes: 3, everyUpdates: 100 },
    health: { trap, ladder: ["roll-back"], interveneAt: "warning", settleUpdates: 1 },
  });
  stage.outcome = (ticket) => outcomeOf(ticket, false);
  // The spread is halved in the third update, and not in the one that takes its place.
  stage.spreads = [2, 2, 1, 2, 2, 2, 2];
  const recorded = spyOn(stage.metrics, "set");
  await stage.training.run();
  expect(stage.calls.filter((call) => call.startsWith("restore"))).toEqual(["restore 2"]);
  expect(stage.warnings.filter((text) => text.startsWith("health: "))).toHaveLength(1);
  expect(stage.told.filter((text) => text.startsWith("health: "))).toEqual(["health: update 2: health: healthy"]);
  const ends = recorded.mock.calls.map(([name]) => /^(total.updates|health.rollbacks) (\d)$/.exec(name)?.[2] ?? "");
  expect(ends.join("")).toBe("1122332334455");
});
