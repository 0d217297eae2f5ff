/** Flags, overrides and presets, through `bun run config`, which prints what a run would get. */
import { describe, expect, test } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../../actors/config/config.ts";
import { commandHere, root } from "../command.ts";
import { temporaryFolder } from "../temporary.ts";

async function config(...args: string[]): Promise<RunConfig> {
  const { code, out, err } = await commandHere(["config", "--json", ...args]);
  expect([code, err]).toEqual([0, ""]);
  return RunConfig.parse(JSON.parse(out));
}

const refused = async (...args: string[]) => {
  const { code, out, err } = await commandHere(["config", ...args]);
  return { code, out, lines: err.trim().split("\n") };
};

const folder = temporaryFolder();
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

describe("what a run is made of", () => {
  const presets = readdirSync(join(root, "configs")).filter((name) => name.endsWith(".yaml"));

  test.each(presets.map((name) => name.replace(".yaml", "")))("preset %s can be run", async (preset) => {
    await config("--preset", preset);
  });

  test.each(["SimpleSokoban", "FrozenLake", "Bandit", "BanditTest"])("every algorithm can play %s", async (env) => {
    for (const preset of ["quickstart", "starpo-ppo", "starpo-s"]) {
      expect((await config("--env", env, "--preset", preset)).env.tag).toBe(env);
    }
  });

  test("the default is StarPO-S: 16 x 8 episodes, the most uncertain half, no KL", async () => {
    const { env, rollout, learner } = await config();
    expect([env.tag, rollout.groups, rollout.groupSize]).toEqual(["SimpleSokoban", 16, 8]);
    expect(learner).toMatchObject({
      algorithm: "dr-grpo",
      optimizer: "muon",
      betas: [0.9, 0.99],
      entropyCoefficient: 3e-3,
      decay: "linear",
      clipLow: 0.2,
      clipHigh: 0.28,
      kl: { coefficient: 0 },
      filter: { strategy: "top_ratio", order: "largest", value: 0.5 },
    });
  });

  test("the Echo Trap and its cures begin with equal weights", async () => {
    const trap = await config("--preset", "echo-trap");
    const cured = await config("--preset", "echo-trap-cured");
    expect([trap.health.ladder.length, cured.health.ladder.length]).toEqual([0, 3]);
    expect({ ...cured, health: trap.health }).toEqual(trap);
    const paper = await config("--preset", "echo-trap-starpo-s");
    const { algorithm, estimator, gamma, lambda, clipHigh, kl, filter } = paper.learner;
    expect([algorithm, clipHigh, filter.value]).toEqual(["ppo", 0.28, 0.25]);
    const sameButAlgorithm = { ...trap.learner, algorithm, estimator, gamma, lambda, clipHigh, kl, filter };
    expect(paper).toEqual({ ...trap, learner: sameButAlgorithm });
  });

  test("an env's file sets its budgets; presets and flags override them", async () => {
    expect((await config("--env", "Bandit")).env).toMatchObject({ turnsMax: 1, actionsMax: 1 });
    expect((await config("--env=Bandit", "--env.turnsMax=2")).env).toMatchObject({ turnsMax: 2, actionsMax: 1 });
    expect((await config("--preset", "frozen-lake")).env.options).toEqual({ successRate: 0.8 });
  });

  test("later wins: preset, then file, then flags in their order", async () => {
    const mine = file("mine.yaml", "learner: {updates: 7, gradClip: 2}\nseed: 5\n");
    const made = await config("--config", mine, "--updates", "9", "--seed=6", "--learner.updates=8", "--port", "0");
    expect(made.metrics.port).toBe(0);
    expect((await config("--seed", "0", "--port", "65535")).metrics.port).toBe(65_535);
    expect([made.seed, made.learner.updates, made.learner.gradClip, made.env.tag]).toEqual([6, 8, 2, "SimpleSokoban"]);
  });

  test("a key that sets others never overrides a flag, also one before it", async () => {
    const made = await config("--learner.aggregation=token-mean", "--learner.algorithm=dr-grpo");
    expect(made.learner).toMatchObject({ estimator: "dr-grpo", aggregation: "token-mean" });
    const served = await config(
      "--model.lora.rank=8",
      "--engine=tinker",
      "--engine.url=http://127.0.0.1:1",
      "--model=m",
    );
    expect(served.model.lora.rank).toBe(8);
  });

  test("values are of the type that their key has, not of the one they look like", async () => {
    const made = await config(
      "--learner.betas=[0.8, 0.95]",
      "--env.think=false",
      "--learner.dualClip=null",
      "--warmStart.cacheDir=123",
      "--warmStart.stages.0.steps=7",
      "--env=FrozenLake",
      "--env.options.successRate=0.5",
      "--env.options.observationFormat=coord",
    );
    expect(made.learner).toMatchObject({ betas: [0.8, 0.95], dualClip: null });
    expect(made.env).toMatchObject({ think: false, options: { successRate: 0.5, observationFormat: "coord" } });
    expect(made.warmStart.cacheDir).toBe("123");
    expect(made.warmStart.stages.map(({ steps }) => steps)).toEqual([7]);
  });

  test("secrets are not printed", async () => {
    const token = "a-secret-of-a-run";
    for (const form of [["--json"], []]) {
      const { code, out, err } = await commandHere(["config", ...form, `--metrics.token=${token}`]);
      expect([code, err, out.includes(token)]).toEqual([0, "", false]);
    }
  });
});

describe("what was typed wrong is refused in one line, with exit code 2", () => {
  test.each([
    [["--updatez", "3"], "config has no flag --updatez; did you mean --updates?"],
    [["--learningRate=1"], "config has no flag --learningRate; did you mean --learner.learningRate?"],
    [["--zzzzzzzzzz"], "config has no flag --zzzzzzzzzz; `--help` lists its flags"],
    [["--updates"], "--updates needs a value: write --updates N"],
    [["--preset="], "--preset needs a value: write --preset NAME"],
    [["--preset", "--json"], "--preset needs a value: write --preset NAME"],
    [["--verbos"], "config has no flag --verbos; did you mean --verbose?"],
    [["--updates", "many"], '--updates takes a whole number, 0 or more, got "many"'],
    [["--updates=-1"], '--updates takes a whole number, 0 or more, got "-1"'],
    [["--updates", "1.5"], '--updates takes a whole number, 0 or more, got "1.5"'],
    [["--minutes", " "], '--minutes takes a number, got " "'],
    [["--port", "65536"], '--port takes a number from 0 to 65535, got "65536"'],
    [["--minutes", "soon"], '--minutes takes a number, got "soon"'],
    [["--json=yes"], '--json takes no value, got "yes"'],
    [["Bandit"], 'config does not understand "Bandit": it takes flags only'],
    [["--", "--json"], 'config does not understand "--json": it takes flags only'],
    [["--env=--json"], '--env --json: env.tag: unknown env tag "--json"; nearest: Lean, WebShop, Bandit'],
    [["--preset", "starpos"], 'no preset "starpos"; did you mean starpo-s?'],
    [["--learner.gamma"], "--learner.gamma needs a value: write --learner.gamma=VALUE"],
    [["--learner.gama=1"], "--learner.gama=1: unknown key learner.gama; did you mean learner.gamma?"],
    [
      ["--learner.groupSize=4"],
      "--learner.groupSize=4: unknown key learner.groupSize; did you mean rollout.groupSize?",
    ],
    [["--learner.gradClip=big"], '--learner.gradClip=big: learner.gradClip takes number, got "big"'],
    [
      ["--learner.kl=1"],
      "--learner.kl=1: learner.kl is a section; set one of coefficient, place, estimator, control, target",
    ],
    [
      ["--engine", "compield"],
      '--engine compield: engine.name: must be one of auto, compiled, tensorflow, eager, tinker; got "compield"; did you mean compiled?',
    ],
    [["--sampler.slots=0"], "--sampler.slots=0: sampler.slots: Too small: expected number to be >0, got 0"],
    [["--metrics.port=70000"], "--metrics.port=70000: metrics.port: Too big: expected number to be <=65535, got 70000"],
    [
      ["--warmStart.stages.1.steps=1"],
      "--warmStart.stages.1.steps=1: no item 1 in a list of 1; items are numbered from 0",
    ],
    [
      ["--learner.lambda=0.9"],
      "--learner.lambda=0.9: learner.lambda is not read by the estimator dr-grpo; leave it out",
    ],
  ])("%j", async (args, line) => {
    expect(await refused(...args)).toEqual({ code: 2, out: "", lines: [`error: ${line}`] });
  });

  test("a file is named, with every fault in it", async () => {
    const bad = file("bad.yaml", "sed: 1\nlearner: {learningRate: -1}\n");
    expect((await refused("--config", bad)).lines).toEqual([
      `error: ${bad}: learner.learningRate: Too small: expected number to be >0, got -1`,
      `error: ${bad}: unknown key sed; did you mean seed?`,
    ]);
    const broken = file("broken.yaml", "learner: [1");
    expect((await refused("--config", broken)).lines[0]).toStartWith(`error: ${broken}: not YAML:`);
    const list = file("list.yaml", "- 1\n");
    expect((await refused("--config", list)).lines[0]).toStartWith(`error: ${list}: must be a mapping of sections`);
    expect((await refused("--config", "nowhere.yaml")).lines[0]).toStartWith(
      "error: cannot read --config nowhere.yaml:",
    );
  });

  test("a name that every JavaScript object has is no preset", async () => {
    const { code, err } = await commandHere(["config", "--preset", "constructor"]);
    expect([code, err]).toEqual([2, expect.stringContaining('error: no preset "constructor"; there are ')]);
  });
});

test("help shows every flag and an example", async () => {
  const { code, out } = await commandHere(["config", "--help"]);
  expect(code).toBe(0);
  for (const part of ["--preset NAME", "--section.key=VALUE", "Examples:", "bun run config"])
    expect(out).toContain(part);
});

test.each(["config", "metrics"])("what %s says is what its page in docs/ says", async (name) => {
  const { out } = await commandHere([name, "--markdown"]);
  expect(await Bun.file(join(root, "docs", name === "config" ? "configuration.md" : "metrics.md")).text()).toBe(out);
});

test.each([
  [["--preset", "starpo-ppo"], "--preset starpo-ppo"],
  [["--config", "mine.yaml"], "--config mine.yaml"],
  [["--env", "Bandit"], "--env Bandit"],
  [["--learner.updates=3"], "--learner.updates=3"],
])("config --markdown does not read %p", async (args, told) => {
  const { code, err } = await commandHere(["config", "--markdown", ...args]);
  expect([code, err]).toEqual([2, `error: --markdown prints the defaults of the schema; leave out ${told}\n`]);
});

test("metrics are listed by the beginning of their names", async () => {
  const { code, out } = await commandHere(["metrics", "validate/", "--json"]);
  const rows = JSON.parse(out) as { name: string; unit: string; help: string }[];
  expect([code, rows.every(({ name }) => name.startsWith("validate/"))]).toEqual([0, true]);
  expect(rows[0]).toMatchObject({
    name: "validate/success",
    unit: "share",
    help: "Share of validation episodes that the policy solved.",
  });
  const none = await commandHere(["metrics", "vaildate/"]);
  expect([none.code, none.err]).toEqual([2, "error: no metric begins with vaildate/; `bun run metrics` lists them\n"]);
  // train/turns has it elsewhere.
  expect((await commandHere(["metrics", "turns"])).err).toContain("no metric begins with turns;");
  const page = await commandHere(["metrics", "validate/", "--markdown"]);
  expect([page.code, page.err]).toEqual([2, "error: --markdown prints all metrics; leave out validate/\n"]);
});

test.each(["config", "metrics"])("%s prints either JSON or Markdown", async (name) => {
  const { code, out, err } = await commandHere([name, "--json", "--markdown"]);
  expect([code, out]).toEqual([2, ""]);
  expect(err).toMatch(/^error: --json and --markdown print the (keys|metrics) in two forms; leave one out\n$/);
});
