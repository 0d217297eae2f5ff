/** The order of a run: what is played, trained, published, saved and reported. Dispatcher, trainer and checkpoints are fakes. */

import { describe, expect, test } from "bun:test";
import { CheckpointError } from "../../../actors/checkpoint/checkpoint.ts";
import { HealthConfig } from "../../../actors/config/health.ts";
import { RunError } from "../../../actors/errors.ts";
import type { Ticket } from "../../../actors/protocol.ts";
import type { Progress } from "../../../actors/training/progress.ts";
import { trainingTickets } from "../../../actors/training/tickets-to-play.ts";
import { figure } from "../../figure.ts";
import { configOf, outcomeOf, rollingBack, type Sections, Stage } from "./stage.ts";

const WHOLE = [
  "publish 1",
  "play v0 3 v1",
  "save 0",
  "play u0 4 v1",
  "update 4",
  "publish 2",
  "play u1 4 v2",
  "update 4",
  "publish 3",
  "play v2 3 v3",
  "play u2 4 v3",
  "update 4",
  "publish 4",
  "save 3",
  "play u3 4 v4",
  "update 4",
  "publish 5",
  "play v4 3 v5",
  "play u4 4 v5",
  "update 4",
  "publish 6",
  "play u5 4 v6",
  "update 4",
  "publish 7",
  "play v6 3 v7",
  "save 6",
  "play end 3 v7",
];

describe("a run", () => {
  test("validates, learns, saves and reports, in this order", async () => {
    const stage = new Stage();
    const report = await stage.training.run();
    expect(stage.calls).toEqual(WHOLE);
    expect(stage.lines).toContain("validate: playing 3 validation boards before the first update");
    expect(report).toMatchObject({
      run: "run",
      env: "Bandit",
      updates: 6,
      engine: "compiled",
      device: "cpu, 2 threads",
      logProbGap: 1e-6,
      success: { taught: null, before: 1, after: 1, best: 1 },
      // 6 updates of 4, and 5 validations of 3, of 2 written tokens each, in a second per batch.
      episodes: 39,
      tokensPerSecond: (2 * 39) / 11,
    });
    // Minutes of reinforcement begin with its first validation, and the report's own is not in them.
    expect(report!.minutes).toBeCloseTo(10 / 60, 9);
    expect(report!.updatesPerMinute).toBeCloseTo(36, 9);
    expect(report!.minutesInAll).toBeCloseTo(11 / 60, 9);
    expect(stage.saved.at(-1)!.minutesInAll).toBeCloseTo(10 / 60, 9);
    expect(stage.warnings).toEqual([]);
  });

  test("tells how long its warm start still takes, without what its first step alone takes", async () => {
    const steps = { batch: 1, learningRate: 1 };
    const stages = [
      { ...steps, name: "learn", steps: 100 },
      { ...steps, name: "blur", steps: 20 },
    ];
    const stage = new Stage({ warmStart: { enabled: true, stages } });
    stage.warmStart = async ({ begun, progress }) => {
      const at = { stage: 1, stages: 2, name: "learn", steps: 100, loss: 1 };
      stage.clock.advance(60_000);
      begun();
      stage.clock.advance(1000);
      progress({ ...at, step: 2, stepOverall: 2 });
      stage.clock.advance(36_000);
      progress({ ...at, step: 20, stepOverall: 20 });
      return { taught: { cool: 1, one: 1 }, cached: false };
    };
    await stage.training.run();
    // 118 steps of 1 s, then 100 of 37 s for 19.
    expect(stage.metrics.get("warm/left_s 2")).toBe(118);
    expect(stage.metrics.get("warm/left_s 20")).toBeCloseTo((100 * 37) / 19, 9);
  });

  test("tells its metrics by update", async () => {
    const stage = new Stage();
    stage.outcome = (ticket) => outcomeOf(ticket, ticket.member === 0);
    await stage.training.run();
    const values = Object.fromEntries([...stage.metrics].filter(([name]) => name.endsWith(" 2")));
    expect(values).toMatchObject({
      "train/success 2": 0.5,
      "train/failed_episodes 2": 0,
      "train/staleness 2": 0,
      "train/grad_norm 2": 0.5,
      "speed/rollout_s 2": 1,
      "speed/tokens_per_second 2": 8,
      "total/updates 2": 2,
      "total/episodes 2": 11,
      "total/tokens 2": 22,
      "weights/publish_ms 2": 7,
      "validate/success 2": 1,
    });
  });

  test("trains on played episodes, counts the others, and warns why an update changed nothing", async () => {
    const stage = new Stage({ learner: { updates: 1, filter: { strategy: "all" } } });
    stage.outcome = (ticket) => {
      return ticket.episode === "u0.g1.m1" ? { status: "envError", detail: "on fire" } : outcomeOf(ticket);
    };
    stage.skipped = "nothing differs";
    await stage.training.run();
    expect(stage.calls).toContain("update 3");
    expect(stage.metrics.get("train/failed_episodes 1")).toBe(1);
    expect(stage.metrics.get("total/skipped_updates 1")).toBe(1);
    expect(stage.warnings).toEqual(["skipped: update 1: nothing differs"]);
  });

  test("that can play nothing ends with the first reason", async () => {
    const stage = new Stage();
    stage.outcome = (ticket) =>
      ticket.purpose === "train" ? { status: "aborted", detail: "no policy" } : outcomeOf(ticket);
    const message = "update 1: 4 of 4 episodes could not be played; u0.g0.m0: no policy";
    await expect(stage.training.run()).rejects.toThrow(new RunError(message));
  });

  test("whose validation is not whole ends: a share of fewer boards would be no comparison", async () => {
    const stage = new Stage();
    stage.outcome = (ticket) =>
      ticket.episode.endsWith("b1") ? { status: "envError", detail: "on fire" } : outcomeOf(ticket);
    const message = "validation v0: 1 of 3 episodes could not be played; v0.t0.5.b1: on fire";
    await expect(stage.training.run()).rejects.toThrow(new RunError(message));
  });

  test("ends when its minutes are over, with a validation and a checkpoint", async () => {
    const stage = new Stage({ learner: { updates: 6, minutes: 0.06, filter: { strategy: "all" } } });
    const report = await stage.training.run();
    // 3.6 s: a validation, two updates and a validation, of a second each, and one update more.
    expect(report!.updates).toBe(3);
    expect(stage.calls.slice(-3)).toEqual(["play v3 3 v4", "save 3", "play end 3 v4"]);
  });
});

test("samplers that compute another policy than the learner are a warning, unless importance weights correct for them", async () => {
  const other = async (changed: Sections) => {
    const stage = new Stage({ learner: { updates: 1, filter: { strategy: "all" }, ...changed } });
    stage.gap = 0.06;
    await stage.training.run();
    return stage.warnings;
  };
  expect(await other({})).toEqual([
    "log-prob-gap: update 1: the log-probabilities of samplers and learner differ by 0.060 nats a token (limit 0.05): their engines compute different policies; to correct for this, set learner.importance.level to token",
  ]);
  expect(await other({ importance: { level: "token" } })).toEqual([]);
});

test("a run that stops early ends like any other, and its report has the reason", async () => {
  const health = { stopEarly: ["reward_variance_collapse"], stops: { baselineUpdates: 2, collapseUpdates: 2 } };
  const stage = new Stage({ health });
  // The fake trainer reports a spread that is gone from the third update on.
  stage.spreads = [2, 2, 0.1, 0.1];
  stage.outcome = (ticket) => outcomeOf(ticket, ticket.member === 0);
  const report = await stage.training.run();
  expect(report).toMatchObject({
    updates: 4,
    stoppedEarly: "reward_variance_collapse: in-group reward std was below 10 % of its start (2.00) for 2 updates",
  });
  expect(stage.metrics.get("health/stopped_early 4")).toBe(1);
  expect(stage.calls.slice(-3)).toEqual(["play v4 3 v5", "save 4", "play end 3 v5"]);
});

test("a run on a task that is solved ends, unless it is asked to train on", async () => {
  const play = (health: object) => {
    const stage = new Stage({ health });
    stage.spreads = Array(6).fill(1);
    return stage.training.run();
  };
  const { stopEarly } = HealthConfig.parse({});
  expect(await play({ stopEarly })).toMatchObject({
    updates: 2,
    stoppedEarly: "solved: validation success was at least 100 % in 2 validations in a row",
  });
  expect(await play({ stopEarly: [] })).toMatchObject({ updates: 6, stoppedEarly: null });
});

test("health is judged in a run without groups too", async () => {
  const learner = { algorithm: "ppo", updates: 6 };
  const stage = new Stage({ learner, rollout: { groupSize: 1 }, health: { stopEarly: ["solved"] } });
  expect(await stage.training.run()).toMatchObject({ updates: 2, stoppedEarly: expect.stringMatching(/^solved: /) });
  expect(stage.metrics.has("health/verdict 1")).toBe(true);
});

test("a checkpoint waits until the episodes of its updates are stored; only the last one does not", async () => {
  const stage = new Stage();
  stage.storing = false;
  await stage.runWithClock();
  expect(stage.calls.filter((call) => call.startsWith("save"))).toEqual(["save 6"]);
  expect(stage.warnings).toContain(
    "checkpoint: the checkpoint of update 3 is not written: the sink has not stored 18 episodes of earlier updates yet",
  );
});

test("a checkpoint whose validation has fallen is none to go back to, whatever the verdict", async () => {
  const stage = new Stage({ validate: { episodes: 3, everyUpdates: 3 } });
  stage.spreads = [2, 2, 2, 2, 2, 2];
  // Validated at updates 0, 3 and 6: all solved, none, all.
  stage.outcome = (ticket) => outcomeOf(ticket, !ticket.episode.startsWith("v3."));
  await stage.training.run();
  const healthy = stage.saved.map(({ update, health }) => [update, health.verdict, health.healthyCheckpoint]);
  expect(healthy).toEqual([
    [0, "healthy", 0],
    [3, "solved", 0],
    [6, "solved", 6],
  ]);
});

test("a checkpoint with a sign that is too young for a warning is none to go back to", async () => {
  const stage = new Stage({
    learner: { updates: 6 },
    validate: { episodes: 3, everyUpdates: 100 },
    checkpoint: { everyUpdates: 1 },
    health: { trap: { startUpdates: 1, patience: 3, spreadShare: 0.95 } },
  });
  stage.outcome = (ticket) => outcomeOf(ticket, false);
  // From the third update on the smoothed spread is below .95 of its start; a warning takes three such updates.
  stage.spreads = [2, 2, 1, 1, 1, 1];
  await stage.training.run();
  const healthy = stage.saved.map(({ update, health }) => [update, health.verdict, health.healthyCheckpoint]);
  expect(healthy.slice(1)).toEqual([
    [1, "healthy", 1],
    [2, "healthy", 2],
    [3, "healthy", 2],
    [4, "healthy", 2],
    [5, "warning", 2],
    [6, "warning", 2],
  ]);
});

describe("async mode", () => {
  const learner = { updates: 6, mode: "async", stalenessMax: 2, filter: { strategy: "all" } };

  test("asks ahead, for versions that will not be too old when they are trained on", async () => {
    const stage = new Stage({
      learner,
      validate: { episodes: 3, everyUpdates: 100 },
      checkpoint: { everyUpdates: 100 },
    });
    await stage.training.run();
    const plays = stage.calls.filter((call) => call.startsWith("play u"));
    // Update u is trained on with version u + 1, so it may be played with u - 1 or newer; reinforcement begins with version 1.
    expect(plays).toEqual([
      "play u0 4 v1+",
      "play u1 4 v1+",
      "play u2 4 v1+",
      "play u3 4 v2+",
      "play u4 4 v3+",
      "play u5 4 v4+",
    ]);
    expect(stage.calls.indexOf("play u2 4 v1+")).toBeLessThan(stage.calls.indexOf("update 4"));
    expect(stage.warnings).toEqual([]);
    expect(Math.max(...[1, 2, 3, 4, 5, 6].map((step) => stage.metrics.get(`train/staleness ${step}`)!))).toBe(2);
  });

  test("plays nothing with a policy that a roll-back gave up", async () => {
    const stage = rollingBack({ learner });
    await stage.training.run();
    const rolledBack = stage.calls.indexOf("restore 3");
    expect(stage.calls[rolledBack + 1]).toBe("publish 6");
    const plays = stage.calls.slice(rolledBack).filter((call) => call.startsWith("play u"));
    expect(plays).toEqual(["play u3r1 4 v6+", "play u4r1 4 v6+", "play u5r1 4 v6+"]);
  });

  test("leaves out episodes that are too old, and counts them in a warning", async () => {
    const stage = new Stage({ learner: { ...learner, updates: 4, stalenessMax: 1 } });
    stage.outcome = (ticket) => outcomeOf(ticket.episode === "u3.g0.m0" ? { ...ticket, version: 1 } : ticket);
    await stage.training.run();
    expect(stage.calls.filter((call) => call.startsWith("update"))).toEqual([
      "update 4",
      "update 4",
      "update 4",
      "update 3",
    ]);
    expect(stage.warnings).toEqual([
      "stale: update 4 does not train on 1 of 4 episodes: their weights are more than 1 update old",
    ]);
    const trained = Math.max(...[1, 2, 3, 4].map((step) => stage.metrics.get(`train/staleness ${step}`)!));
    expect(trained).toBeLessThanOrEqual(1);
    figure("stale trajectory", { played: 16, "too old": 1, "oldest trained on": `${trained} of 1 updates` });
  });
});

describe("a run that is stopped", () => {
  /** Stop when this call has been made. */
  async function stoppedAfter(
    call: string,
    changed: Sections = {},
    spreads: readonly number[] = [],
  ): Promise<{ stage: Stage; saved: Progress }> {
    const stage = new Stage(changed);
    stage.spreads = spreads;
    if (spreads.length > 0) stage.outcome = (ticket) => outcomeOf(ticket, ticket.member === 0);
    const push = stage.calls.push.bind(stage.calls);
    stage.calls.push = (...calls: string[]) => {
      if (calls.includes(call)) stage.training.stop("SIGTERM");
      return push(...calls);
    };
    expect(await stage.training.run()).toBe(null);
    return { stage, saved: stage.saved.at(-1)! };
  }

  test.each([
    ["play u1 4 v2", 1],
    ["update 4", 1],
    ["play v2 3 v3", 2],
    ["play u3 4 v4", 3],
    ["play v6 3 v7", 6],
    ["play end 3 v7", 6],
  ])("in %p saves %p updates, and going on makes what was left", async (call, update) => {
    const { stage, saved } = await stoppedAfter(call);
    expect(saved.update).toBe(update);
    const resumed = new Stage({}, saved);
    const report = await resumed.training.run();
    // A resumed run publishes its weights as the next version; else it does what an undisturbed run does.
    const bare = (calls: readonly string[]) =>
      calls.map((one) => one.replace(/ v\d+$/, "")).filter((one) => !/^publish/.test(one));
    const played = (calls: readonly string[]) => bare(calls).filter((one) => !/^save/.test(one));
    const before = played(stage.calls.slice(0, stage.calls.lastIndexOf(call) + (call.startsWith("play") ? 0 : 1)));
    expect([...before, ...played(resumed.calls)]).toEqual(played(WHOLE));
    expect(report).toMatchObject({ updates: 6, episodes: 39, success: { before: 1, after: 1 } });
    expect(report!.minutesInAll).toBeCloseTo(saved.minutesInAll + resumed.clock.now() / 60_000, 9);
    expect(resumed.saved.at(-1)?.update ?? saved.update).toBe(6);
  });

  test.each(["play v4 3 v5", "play end 3 v5"])(
    "in %p, after an early stop, does not train on when it is resumed",
    async (call) => {
      const health = { stopEarly: ["reward_variance_collapse"], stops: { baselineUpdates: 2, collapseUpdates: 2 } };
      const { saved } = await stoppedAfter(call, { health }, [2, 2, 0.1, 0.1]);
      const resumed = new Stage({ health }, saved);
      expect(await resumed.training.run()).toMatchObject({
        updates: 4,
        stoppedEarly: expect.stringMatching(/^reward_variance_collapse: /),
      });
      expect(resumed.calls.filter((one) => one.startsWith("update"))).toEqual([]);
    },
  );

  test("before the first validation has nothing to save", async () => {
    const stage = new Stage();
    stage.training.stop("SIGTERM");
    expect([await stage.training.run(), stage.saved]).toEqual([null, []]);
  });
});

describe("a checkpoint that cannot be written", () => {
  const full = new CheckpointError("cannot save u000003: the disk is full");

  test("on the way is a warning, and training continues", async () => {
    const stage = new Stage();
    stage.saving = ({ update }) => {
      if (update === 3) throw full;
    };
    expect((await stage.training.run())!.updates).toBe(6);
    expect(stage.warnings).toEqual(["checkpoint: cannot save u000003: the disk is full"]);
    expect(stage.saved.map(({ update }) => update)).toEqual([0, 6]);
  });

  test("at the end fails the run, because updates are lost", async () => {
    const stage = new Stage();
    stage.saving = ({ update }) => {
      if (update > 3) throw full;
    };
    const message = "the updates after 3 are lost: cannot save u000003: the disk is full";
    await expect(stage.training.run()).rejects.toThrow(new RunError(message));
  });
});

describe("a gradient that is not finite", () => {
  const broken = (updates: number) => {
    const stage = new Stage({ learner: { updates, filter: { strategy: "all" } } });
    Object.assign(stage, { gradNorm: Number.NaN, skipped: "the gradient's norm is NaN; no step was taken" });
    return stage;
  };

  test("in too many updates in a row ends the run with a reason; none of the numbers is reported", async () => {
    const stage = broken(6);
    const message =
      "5 updates in a row had no finite gradient; update 5: the gradient's norm is NaN; no step was taken; start a new run with a lower learner.learningRate";
    await expect(stage.training.run()).rejects.toThrow(new RunError(message));
    expect(stage.metrics.get("total/skipped_updates 4")).toBe(4);
    expect([...stage.metrics].filter(([, value]) => !Number.isFinite(value))).toEqual([]);
    figure("NaN log-probability, loss or gradient", { "updates until the run ends": 5, allowed: 5 });
  });

  test("is forgotten with the next one that is", async () => {
    const stage = broken(8);
    stage.outcome = (ticket) => {
      stage.gradNorm = ticket.episode.startsWith("u2.") ? 0.5 : Number.NaN;
      return outcomeOf(ticket);
    };
    await expect(stage.training.run()).rejects.toThrow("update 8: ");
  });
});

describe("groups that can teach nothing", () => {
  /** Of update 0, groups 0 and 3 earn the same throughout; group 2, which replaces 0, does as well. */
  const outcome = (ticket: Ticket) =>
    outcomeOf(ticket, ticket.purpose === "validate" || (![0, 2].includes(ticket.group) && ticket.member === 0));

  test("are replaced by groups on boards of their own, and counted", async () => {
    const stage = new Stage({ learner: { updates: 1, resampleRoundsMax: 3 } });
    stage.outcome = outcome;
    await stage.training.run();
    // Group 0 by 2, and 2 by 3.
    expect(stage.calls.filter((call) => call.startsWith("play u"))).toEqual([
      "play u0 4 v1",
      "play u0 2 v1",
      "play u0 2 v1",
    ]);
    expect(stage.calls).toContain("update 8");
    expect(stage.settings[0]!.dropConstant).toBe(true);
    expect(stage.metrics.get("train/replaced_groups 1")).toBe(2);
    expect(stage.metrics.get("total/episodes 1")).toBe(3 + 8);
  });

  test("are replaced by groups of their own env", async () => {
    const mix = [{ tag: "Bandit" }, { tag: "FrozenLake" }];
    const stage = new Stage({ env: { mix }, rollout: { groups: 4 }, learner: { updates: 1, resampleRoundsMax: 1 } });
    const replacing = new Set<string>();
    stage.outcome = (ticket) => {
      if (ticket.purpose === "train" && ticket.group >= 4) replacing.add(`${ticket.group} ${ticket.env}`);
      return outcomeOf(ticket, ticket.env === "Bandit" && ticket.member === 0);
    };
    await stage.training.run();
    expect([...replacing]).toEqual(["4 FrozenLake", "5 FrozenLake"]);
    expect(stage.metrics.get("train/groups{env=FrozenLake} 1")).toBe(4);
  });

  test("are kept after the last round", async () => {
    const stage = new Stage({ learner: { updates: 1, resampleRoundsMax: 2 } });
    stage.outcome = (ticket) => outcomeOf(ticket, ticket.purpose === "validate");
    await stage.training.run();
    expect(stage.calls.filter((call) => call.startsWith("play u")).length).toBe(3);
    expect(stage.calls).toContain("update 12");
  });

  test("are let be by default", async () => {
    const stage = new Stage({ learner: { updates: 1 } });
    stage.outcome = outcome;
    await stage.training.run();
    expect(stage.calls.filter((call) => call.startsWith("play u"))).toEqual(["play u0 4 v1"]);
    expect([...stage.metrics.keys()].filter((name) => name.startsWith("train/replaced"))).toEqual([]);
  });

  test("never share a board with another group, in this update or another", () => {
    const config = configOf({ learner: { updates: 3, resampleRoundsMax: 2 } });
    const seeds = [0, 1, 2].flatMap((update) =>
      [...Array(6).keys()].flatMap((group) =>
        trainingTickets(config, update, 1, 0, [{ group, env: "Bandit" }]).map(({ layoutSeed }) => layoutSeed),
      ),
    );
    expect(new Set(seeds).size).toBe(18);
    expect(Math.max(...seeds) - Math.min(...seeds)).toBe(17);
  });
});
