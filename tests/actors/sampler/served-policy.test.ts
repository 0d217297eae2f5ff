/** Samplers whose replies an inference server writes: whole runs on one thread, against servers of vLLM's and SGLang's schemas. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { RunConfig } from "../../../actors/config/config.ts";
import type { Tree } from "../../../actors/config/layers.ts";
import { adaptersFolder } from "../../../actors/sampler/served-policy.ts";
import { thisProcess } from "../../../actors/weights/files.ts";
import { writeTinyModel } from "../../../scripts/setup/tiny-model.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun } from "../supervisor/tiny-run.ts";
import { AdapterServer } from "./adapter-server.ts";

const home = temporaryFolder();
const model = join(home, "model");
let server: AdapterServer;
beforeAll(async () => {
  await writeTinyModel(model);
  server = new AdapterServer(model);
});
afterAll(() => server.stop());

const configOf = (engine: string, changes: Tree = {}): RunConfig =>
  aConfig(
    {
      env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
      model: { path: model, lora: { rank: 4, alpha: 8 } },
      engine: { name: "compiled", threads: 1, url: server.url },
      rollout: { groups: 2, groupSize: 4, contextTokensMax: 200, replyTokensMax: 12 },
      sampler: { count: 1, slots: 16, engine },
      warmStart: { enabled: false },
      learner: { algorithm: "rloo", updates: 2, learningRate: 1e-2, filter: { strategy: "all" } },
      validate: { episodes: 4, everyUpdates: 100, temperature: 1 },
      metrics: { port: 0 },
    },
    changes,
  );

test.each(["vllm", "sglang"])(
  "%s gets every version's adapters, and writes what the learner computes",
  async (engine) => {
    const folder = join(home, engine);
    server.asked.length = 0;
    await playRun(folder, configOf(engine));
    const { updates, logProbGap } = JSON.parse(readFileSync(join(folder, "report.json"), "utf8"));
    expect(updates).toBe(2);
    expect(logProbGap).toBeLessThan(1e-5);
    const count = (word: string) => server.asked.filter((path) => path.includes(word)).length;
    // Versions 0, 1 and 2.
    expect(count("/load_lora_adapter")).toBe(3);
    expect(count("/unload_lora_adapter")).toBeGreaterThanOrEqual(2);
    expect(count(engine === "vllm" ? "/v1/completions" : "/generate")).toBeGreaterThanOrEqual(16);
  },
  120_000,
);

test("a server that was started again gets the adapters again", async () => {
  let replies = 0;
  server.interfere = (path) => {
    if (path === "/v1/completions" && ++replies === 10) server.loaded.clear();
  };
  server.asked.length = 0;
  await playRun(join(home, "again"), configOf("vllm"));
  expect(server.asked.filter((path) => path === "/v1/load_lora_adapter").length).toBeGreaterThan(3);
}, 120_000);

test("a sampler removes the adapters that killed samplers left, and those of no other process", () => {
  const parent = temporaryFolder();
  const { namespace, pid, startTime } = thisProcess();
  const killed = `bunraku-adapters-${namespace}.${pid}.${startTime + 1}-x`;
  const elsewhere = `bunraku-adapters-${namespace + 1}.${pid}.1-x`;
  for (const name of [killed, elsewhere, "bunraku-adapters-mine"]) mkdirSync(join(parent, name));
  writeFileSync(join(parent, killed, "adapter_config.json"), "{}");
  const mine = [adaptersFolder(parent), adaptersFolder(parent)].map((path) => path.slice(parent.length + 1));
  expect(readdirSync(parent).sort()).toEqual([elsewhere, "bunraku-adapters-mine", ...mine].sort());
});

test.each<[string, Tree, string]>([
  [
    "no address",
    { engine: { url: null } },
    "engine.url: sampler.engine vllm needs the address of its server; set engine.url",
  ],
  [
    "a whole model",
    { model: { lora: { rank: 0 } } },
    "model.lora.rank: sampler.engine vllm writes replies only with LoRA adapters; set model.path (--model) and a rank above 0",
  ],
  [
    "another temperature",
    { rollout: { temperature: 0.5 } },
    "rollout.temperature: sampler.engine vllm reports log-probabilities at temperature 1, got 0.5; set it to 1",
  ],
])("%s is refused before the run", (_, changes, text) => {
  expect(() => configOf("vllm", changes)).toThrow(text);
});
