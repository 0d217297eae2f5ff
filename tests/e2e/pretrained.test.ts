/** `bun run cluster --model`: a model that Python made (tests/golden/checkpoints.py), trained from start to end. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { loadCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { loadPretrained } from "../../actors/policy/pretrained.ts";
import { layParameters } from "../../model/policy/parameters.ts";
import { commandHere } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { LONG, learnt, RunProcess, timeIndependentMetrics } from "./run-process.ts";

setDefaultTimeout(LONG);

const home = temporaryFolder();

const modelOf = (name: string) => join(import.meta.dir, "../golden/checkpoints", name);

/**
 * Small enough for seconds. A random model never answers in form, so what tells its episodes apart is the length of their
 * replies: overlong ones cost reward.
 */
const small = [
  "--rollout.groups=4",
  "--rollout.groupSize=4",
  "--rollout.replyTokensMax=24",
  "--rollout.contextTokensMax=640",
  "--learner.filter.strategy=all",
  "--learner.overlong.weight=1",
  "--learner.overlong.margin=1",
  "--learner.minibatch=16",
  "--learner.learningRate=1e-3",
  "--validate.episodes=8",
  "--metrics.port=0",
  "--checkpoint.everyUpdates=1",
  "--sampler.count=1",
  "--sampler.slots=8",
];
/** For a run whose actors need no processes; a run with processes has to learn the same. */
const ONE_THREAD = "--actors=one-thread";
const argsOf = (name: string, model: string, ...more: string[]) => [
  "--model",
  modelOf(model),
  "--env",
  "Bandit",
  "--run-dir",
  join(home, name),
  ...small,
  ...more,
];
const start = (name: string, model: string, ...more: string[]) =>
  new RunProcess(join(home, name), argsOf(name, model, ...more));

/** Expects that a run with these settings, stopped after an update and resumed, learns what `whole` learned. */
async function expectEqualAfterStop(whole: RunProcess, name: string, ...settings: string[]): Promise<void> {
  const stopped = start(name, "qwen2", ...settings, ONE_THREAD);
  await stopped.updated(1);
  stopped.kill("SIGTERM");
  expect((await stopped.ended).code).toBe(0);
  const resumed = await commandHere(["cluster", "--resume", stopped.folder, "--metrics.port=0"]);
  expect(resumed.code).toBe(0);
  expect(await learnt(stopped.folder)).toEqual(await learnt(whole.folder));
}

test("a run that was stopped and resumed learns what one that was not learns, and can be played", async () => {
  const whole = start("whole", "qwen2", "--updates", "3", "--json");
  const { code, out, err } = await whole.ended;
  expect({ code, err }).toMatchObject({ code: 0, err: expect.not.stringMatching(/^(warning|error):/m) });
  const report = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  expect(report).toMatchObject({ env: "Bandit", updates: 3, episodes: 3 * 16 + 3 * 8 });
  // What samplers recorded is what the learner computes from the same tokens.
  expect(report.logProbGap).toBeLessThan(1e-4);
  const stored = timeIndependentMetrics(whole.folder).map((row) => JSON.parse(row) as [string, string, number, number]);
  const of = (name: string) => stored.filter(([other]) => other === name).map(([, , , value]) => value);
  expect(of("train/grad_norm").filter((norm) => norm > 0)).toHaveLength(3);

  const { model, policy } = await loadCheckpoint(join(whole.folder, "checkpoints", "u000003"));
  const before = layParameters(model);
  await loadPretrained(modelOf("qwen2"), model, before);
  const moved = policy.parameters.reduce((most, value, i) => Math.max(most, Math.abs(value - before.flat[i]!)), 0);
  expect(moved).toBeGreaterThan(1e-3);

  await expectEqualAfterStop(whole, "stopped", "--updates", "3");

  const played = await commandHere(["eval", "--policy", whole.folder, "--json"]);
  expect(played.code).toBe(0);
  expect(JSON.parse(played.out.trimEnd().split("\n").at(-1)!)).toMatchObject({ episodes: 8 });
});

test("--smoke goes through two updates of the preset for pretrained models", async () => {
  const flags = ["--model", modelOf("qwen2"), "--smoke", "--port", "0", "--run-dir", join(home, "smoke"), "--json"];
  const { code, out, err } = await commandHere(["cluster", ...flags, ONE_THREAD]);
  expect(code).toBe(0);
  expect(err).toStartWith(
    "smoke run: 2 updates of 2 groups of 2 episodes, at most 2 turns and 16 tokens a reply; it shows that the config works, and learns nothing\n",
  );
  const report = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  // 2 updates of 2 groups of 2; 2 boards before, after, and at temperature 1.
  expect(report).toMatchObject({ env: "SimpleSokoban", updates: 2, episodes: 2 * 4 + 3 * 2 });
});

test.each(["qwen3", "llama"])("%s, with a critic and a KL term", async (name) => {
  const how = ["--updates", "1", "--json", "--learner.algorithm=ppo", "--learner.kl.coefficient=0.1", ONE_THREAD];
  const { code, out } = await commandHere(["cluster", ...argsOf(name, name, ...how)]);
  expect(code).toBe(0);
  expect(JSON.parse(out.trimEnd().split("\n").at(-1)!).logProbGap).toBeLessThan(1e-4);
});

test("adapters are trained, sent and saved alone, and a resumed run continues with them", async () => {
  const lora = ["--model.lora.rank=2", '--model.lora.targets=["q_proj","up_proj"]', "--learner.kl.coefficient=0.1"];
  const whole = start("lora", "qwen2", "--updates", "2", "--json", ...lora, "--learner.algorithm=ppo");
  const { code, out } = await whole.ended;
  expect(code).toBe(0);
  expect(JSON.parse(out.trimEnd().split("\n").at(-1)!).logProbGap).toBeLessThan(1e-4);
  const { model, policy } = await loadCheckpoint(join(whole.folder, "checkpoints", "u000002"));
  const { views } = layParameters(model, policy.parameters);
  // A (2, 8) and B of q_proj (8, 2) and up_proj (16, 2), in both layers.
  expect([...views.keys()].map((name) => name.replace(/^model\.layers\./, ""))).toEqual(
    ["0", "1"].flatMap((layer) =>
      ["self_attn.q_proj", "mlp.up_proj"].flatMap((module) =>
        ["A", "B"].map((part) => `${layer}.${module}.lora_${part}.weight`),
      ),
    ),
  );
  const moved = [...views].filter(
    ([name, { values }]) => name.includes("lora_B") && values.some((value) => value !== 0),
  );
  expect(moved).toHaveLength(4);
  await expectEqualAfterStop(whole, "lora-stopped", "--updates", "2", ...lora, "--learner.algorithm=ppo");
});

test("a model that cannot be used is one line before there is a run", async () => {
  const broken = join(home, "broken");
  cpSync(modelOf("qwen2"), broken, { recursive: true });
  rmSync(join(broken, "model-00002-of-00002.safetensors"));
  const { code, out, err } = await commandHere([
    "cluster",
    "--model",
    broken,
    "--run-dir",
    join(home, "none"),
    "--metrics.port=0",
  ]);
  expect({ code, out }).toEqual({ code: 1, out: "" });
  expect(err.trim()).toStartWith(`error: cannot read ${broken}/model-00002-of-00002.safetensors`);
  expect(err.trim().split("\n")).toHaveLength(1);
  expect(await Bun.file(join(home, "none", "config.json")).exists()).toBe(false);
});
