/** A warm start runs its stages. The cache holds a whole warm start, under a digest of everything that decides its result. */

import { beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { nextTurn } from "../../../actors/clock.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { RunError } from "../../../actors/errors.ts";
import { Meter } from "../../../actors/metrics/meter.ts";
import { envsWithRules } from "../../../actors/play/envs-of-run.ts";
import { rulesOf } from "../../../actors/play/play-episode.ts";
import { policyOf } from "../../../actors/policy/pretrained.ts";
import { inOrder } from "../../../actors/process/worker-rpc.ts";
import type { DemonstratedEnv } from "../../../actors/training/demonstrations.ts";
import { type WarmStartContext, warmStart } from "../../../actors/training/warm-start.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import { layParameters } from "../../../model/policy/parameters.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";

let cacheDir: string;
beforeEach(() => {
  cacheDir = join(temporaryFolder(), "cache");
});

const stage = { batch: 2, finalFraction: 0.5, warmUpSteps: 2 };
const base = {
  env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
  model: { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 16 },
  warmStart: {
    imitate: "demonstrator",
    boards: 10,
    stages: [
      { ...stage, name: "learn", babble: 0.5, noise: 0, steps: 6, learningRate: 0.1 },
      { ...stage, name: "blur", babble: 1, noise: 0, steps: 25, learningRate: 0.01, finalFraction: 1, warmUpSteps: 0 },
    ],
  },
};
type Sections = Record<string, Record<string, unknown>>;
const configOf = (changed: Sections = {}): RunConfig => aConfig(base, { warmStart: { cacheDir } }, changed);

/** The context of a warm start, with a trainer that only adds the learning rate to parameters. */
function trainee(config: RunConfig, changed: Partial<WarmStartContext> = {}) {
  const { dialogue, model } = policyOf(config);
  const parameters = layParameters(model);
  const calls: string[] = [];
  const rates: number[] = [];
  const notices: string[] = [];
  const unused = () => Promise.reject(new Error("not part of a warm start"));
  const context: WarmStartContext = {
    config,
    model,
    parameters,
    trainer: {
      start: unused,
      keepReference: unused,
      update: unused,
      prepareCheckpoint: unused,
      resumeFrom: unused,
      crossScore: unused,
      analyzeGradients: unused,
      resetOptimizer: async () => void calls.push("reset"),
      async imitate(demos, _, optimizer) {
        rates.push(optimizer.learningRate);
        for (const { tokens } of demos) parameters.flat[tokens.at(-5)!]! += optimizer.learningRate;
        return rates.length;
      },
    },
    demonstrations: {
      envs: envsWithRules(config),
      context: rulesOf(config),
      dialogue,
    },
    async measureTaught() {
      calls.push("measure");
      return { cool: 0.75, one: 0.5 };
    },
    engine: "compiled, cpu, 2 threads",
    meter: new Meter(new FakeClock()),
    async sample(stepOverall) {
      calls.push(`sample ${stepOverall}`);
      return { success: Promise.resolve(null) };
    },
    progress: ({ name, step, steps, stepOverall, loss }) =>
      void calls.push(`${name} ${step}/${steps} ${stepOverall} ${loss}`),
    begun: () => void calls.push("begun"),
    checkStop: () => {},
    notice: (text) => void notices.push(text),
    ...changed,
  };
  return { context, parameters, calls, rates, notices };
}

const kept = () => readdirSync(cacheDir);

describe("a fresh warm start", () => {
  test("goes through its stages, each with a fresh optimizer, and measures success after the first", async () => {
    const { context, calls } = trainee(configOf());
    expect(await warmStart(context)).toEqual({ taught: { cool: 0.75, one: 0.5 }, cached: false });
    // The loss is the mean of the steps since the last report: of 1 and 2, 3 to 6, 7 to 20 and 21 to 31.
    expect(calls).toEqual([
      "reset",
      "begun",
      "learn 2/6 2 1.5",
      "learn 6/6 6 4.5",
      "measure",
      "reset",
      "blur 14/25 20 13.5",
      "blur 25/25 31 26",
      "reset",
    ]);
  });

  test("ends its first stage when the policy solves a sample and then every validation board", async () => {
    const stages = [{ ...stage, name: "learn", babble: 0, noise: 0, steps: 1000, learningRate: 0.01 }];
    const play = async (solvedShare: number | null) => {
      const measured: string[] = [];
      const { context, rates } = trainee(configOf({ warmStart: { stages, solvedShare } }), {
        // The policy solves the sample from 400 steps on, and every validation board from 600 steps on. A sample ends before the next report.
        sample: async (stepOverall) => ({ success: Promise.resolve(stepOverall >= 400 ? 1 : 0.97) }),
        async measureTaught(name) {
          measured.push(name);
          return { cool: rates.length >= 600 ? 1 : 0.99, one: 0.9 };
        },
      });
      const { taught } = await warmStart(context);
      return { steps: rates.length, taught, measured };
    };
    const taught = { cool: 1, one: 0.9 };
    expect(await play(1)).toEqual({ steps: 620, taught, measured: ["taught420", "taught620"] });
    expect(await play(null)).toEqual({ steps: 1000, taught, measured: ["taught"] });
  });

  test("gives the trainer a step while the step before runs, but waits for all steps before it samples or reports", async () => {
    let unfinished = 0;
    const seen: Record<"step" | "sample" | "progress", Set<number>> = {
      step: new Set(),
      sample: new Set(),
      progress: new Set(),
    };
    const stages = [{ ...stage, name: "learn", babble: 0, noise: 0, steps: 450, learningRate: 0.01 }];
    const { context } = trainee(configOf({ warmStart: { stages } }), {
      async sample() {
        seen.sample.add(unfinished);
        return { success: Promise.resolve(null) };
      },
      progress: () => void seen.progress.add(unfinished),
    });
    const imitate = inOrder(async () => {
      // The loop plays the next batch, and then waits for this step or gives the next one.
      for (let i = 0; i < 1000; i++) await null;
      seen.step.add(unfinished--);
      return 1;
    });
    const counted = () => {
      unfinished++;
      return imitate();
    };
    await warmStart({ ...context, trainer: { ...context.trainer, imitate: counted } });
    expect(seen).toEqual({ step: new Set([1, 2]), sample: new Set([0]), progress: new Set([0]) });
  });

  test("trains while a sample plays, and takes its result at the next report", async () => {
    const stages = [{ ...stage, name: "learn", babble: 0, noise: 0, steps: 450, learningRate: 0.01 }];
    const { promise: success, resolve } = Promise.withResolvers<number>();
    const sampled: number[] = [];
    const { context, rates } = trainee(configOf({ warmStart: { stages } }), {
      async sample(stepOverall) {
        sampled.push(stepOverall);
        return { success };
      },
      measureTaught: async () => ({ cool: 1, one: 1 }),
    });
    const warm = warmStart(context);
    while (sampled.length === 0) await nextTurn();
    // Only the sample's result is missing at step 220.
    for (let i = 0; i < 1000; i++) await nextTurn();
    expect([sampled, rates.length]).toEqual([[200], 220]);
    resolve(1);
    await warm;
    expect(rates.length).toBe(220);
  });

  test("ends with the error of a sample", async () => {
    const stages = [{ ...stage, name: "learn", babble: 0, noise: 0, steps: 450, learningRate: 0.01 }];
    const { context } = trainee(configOf({ warmStart: { stages } }), {
      sample: async () => ({ success: Promise.reject(new Error("no sampler")) }),
    });
    expect(warmStart(context)).rejects.toThrow("no sampler");
  });

  test("ends with the error of a step that failed", async () => {
    const { context } = trainee(configOf());
    let steps = 0;
    const imitate = async () => {
      if (++steps === 4) throw new Error("imitation diverged");
      return 1;
    };
    await expect(warmStart({ ...context, trainer: { ...context.trainer, imitate } })).rejects.toThrow(
      "imitation diverged",
    );
    expect(steps).toBeLessThan(7);
  });

  test("raises its step size linearly to the peak, and lowers it to the final fraction", async () => {
    const { context, rates } = trainee(configOf());
    await warmStart(context);
    // 2 steps up; then 4 from 0.1 towards half of it.
    const expected = [0.05, 0.1, 0.1, 0.0875, 0.075, 0.0625];
    for (const [i, rate] of expected.entries()) expect(rates[i]).toBeCloseTo(rate, 10);
    expect(rates.slice(6)).toEqual(Array(25).fill(0.01));
  });

  test("begins with weights that depend on the seed", async () => {
    const still = { imitate: async () => 0 };
    const from = async (seed: number) => {
      const { context, parameters } = trainee({ ...configOf(), seed });
      await warmStart({ ...context, trainer: { ...context.trainer, ...still } });
      return [...parameters.flat];
    };
    const first = await from(1);
    expect(new Set(first).size).toBeGreaterThan(1000);
    expect(await from(2)).not.toEqual(first);
  });

  test("is refused before its first step if a reply of the demonstrator is longer than the policy's may be", async () => {
    const limited = (replyTokensMax: number) => trainee(configOf({ rollout: { replyTokensMax } }));
    const { context, calls } = limited(6);
    const text =
      "a policy cannot imitate the demonstrations of Bandit: their longest reply has 7 tokens, and " +
      "rollout.replyTokensMax is 6; set this key to 7 or more";
    await expect(warmStart(context)).rejects.toThrow(new RunError(text));
    expect(calls).toEqual([]);
    expect((await warmStart(limited(7).context)).cached).toBe(false);
  });

  test("that is stopped leaves nothing in the cache", async () => {
    let steps = 0;
    const stopped = () => {
      if (++steps > 3) throw new Error("asked to stop");
    };
    await expect(warmStart(trainee(configOf(), { checkStop: stopped }).context)).rejects.toThrow("asked to stop");
    expect(() => kept()).toThrow("ENOENT");
  });
});

describe("a warm start that was made before", () => {
  test("is loaded: the same weights, the same measurement, and no training", async () => {
    const fresh = trainee(configOf());
    await warmStart(fresh.context);
    const again = trainee(configOf());
    expect(await warmStart(again.context)).toEqual({ taught: { cool: 0.75, one: 0.5 }, cached: true });
    expect(again.parameters.flat).toEqual(fresh.parameters.flat);
    // Without this reset a device would keep the weights from before the cache was read.
    expect([again.calls, kept().length]).toEqual([["reset"], 1]);
  });

  test("does not overwrite the unfinished file of another run in the same process", async () => {
    await warmStart(trainee(configOf()).context);
    const [file = ""] = kept();
    const theirs = join(cacheDir, `${file}.${process.pid}`);
    renameSync(join(cacheDir, file), theirs);
    await warmStart(trainee(configOf()).context);
    expect(kept().toSorted()).toEqual([file, basename(theirs)]);
  });

  const decisive: [string, Sections | { seed: number }][] = [
    ["the seed", { seed: 2 }],
    ["the env's rules", { env: { formatPenalty: -0.2 } }],
    ["the env's options", { env: { options: { loArmScore: 0.2 } } }],
    ["thoughts", { env: { think: false } }],
    ["the prompt", { prompt: { layout: "ragen-v2" } }],
    ["what the policy sees of earlier turns", { prompt: { context: "limited_multi_turn", contextTurnsMax: 2 } }],
    ["the model", { model: { hidden: 32 } }],
    ["the boards", { warmStart: { boards: 11 } }],
    ["the optimizer", { learner: { optimizer: "muon" } }],
    ["a stage", { warmStart: { stages: [base.warmStart.stages[0]!] } }],
    ["the validation that measures the result", { validate: { episodes: 128 } }],
    ["the threads of the samplers, which round differently", { sampler: { threads: 2 } }],
    ["the engine that the config names for the samplers", { engine: { name: "compiled" } }],
    ["the length of replies", { rollout: { replyTokensMax: 23 } }],
    ["the length of episodes", { rollout: { contextTokensMax: 350 } }],
    ["the micro-batches, which round differently", { learner: { microTokensMax: 1024 } }],
    ["the optimizer", { learner: { betas: [0.8, 0.99] } }],
  ];
  test.each(decisive)("is not taken if %s differs", async (_, changed) => {
    await warmStart(trainee(configOf()).context);
    const { cached } = await warmStart(trainee(configOf(changed as Sections)).context);
    expect([cached, kept().length]).toEqual([false, 2]);
  });

  test("is not taken if another engine computes, or the engine has another number of threads", async () => {
    await warmStart(trainee(configOf()).context);
    const { cached } = await warmStart({ ...trainee(configOf()).context, engine: "compiled, cpu, 4 threads" });
    expect([cached, kept().length]).toEqual([false, 2]);
  });

  test("is not taken if the code of the demonstrator or of the env differs", async () => {
    const { context } = trainee(configOf());
    await warmStart(context);
    const [{ tag, rules }] = context.demonstrations.envs as [DemonstratedEnv];
    const other = "<think>pull Dragon</think><answer>Dragon</answer>";
    const changedCode: EnvTag[] = [
      { ...tag, demonstrator: { reply: () => other } },
      { ...tag, open: ({ layout, dynamics }) => tag.open({ layout: layout + 1, dynamics }) },
      // A change that the previewed demonstrations do not show.
      { ...tag, digest: "ab".repeat(32) },
    ];
    for (const [i, changed] of changedCode.entries()) {
      const demonstrations = { ...context.demonstrations, envs: [{ tag: changed, rules }] };
      const { cached } = await warmStart(trainee(configOf(), { demonstrations }).context);
      expect([cached, kept().length]).toEqual([false, i + 2]);
    }
    expect((await warmStart(trainee(configOf()).context)).cached).toBe(true);
  });

  test("is not taken if a module of the run's envs differs", async () => {
    const config = configOf();
    for (const [i, digest] of ["ab", "cd"].entries()) {
      const env = { ...config.env, modules: { "/street.ts": digest.repeat(32) } };
      const { cached } = await warmStart(trainee({ ...config, env }).context);
      expect([cached, kept().length]).toEqual([false, i + 1]);
    }
  });

  test("is taken by a run that differs only in what follows the warm start", async () => {
    await warmStart(trainee(configOf()).context);
    const changed = {
      learner: { updates: 7, learningRate: 1, algorithm: "ppo" },
      sampler: { count: 5 },
      envServer: { count: 3 },
      metrics: { port: 0 },
      rollout: { groups: 20 },
    };
    expect((await warmStart(trainee(configOf(changed)).context)).cached).toBe(true);
  });

  test.each([
    ["was cut", (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 10)],
    ["has other content", () => new TextEncoder().encode("not weights at all")],
  ])("runs again, with a warning, if its file %s", async (_, spoil) => {
    const fresh = trainee(configOf());
    await warmStart(fresh.context);
    const file = join(cacheDir, kept()[0]!);
    writeFileSync(file, spoil(readFileSync(file)));
    const again = trainee(configOf());
    expect((await warmStart(again.context)).cached).toBe(false);
    expect(again.parameters.flat).toEqual(fresh.parameters.flat);
    expect(again.notices).toEqual([
      expect.stringContaining(`the cached warm start ${file} cannot be used, so the warm start runs again`),
    ]);
    expect((await warmStart(trainee(configOf()).context)).cached).toBe(true);
  });
});

test("a cache that cannot be written is a warning, and the run continues", async () => {
  const file = join(temporaryFolder(), "file");
  writeFileSync(file, "");
  const { context, notices } = trainee(configOf({ warmStart: { cacheDir: join(file, "cache") } }));
  expect((await warmStart(context)).taught).toEqual({ cool: 0.75, one: 0.5 });
  expect(notices).toEqual([expect.stringContaining("cannot keep the warm start for other runs in ")]);
});
