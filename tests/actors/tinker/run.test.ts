/** Whole runs of engine tinker on one thread, against a server whose policy is a table of bigrams: they learn, stop and go on. */

import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { RunConfig } from "../../../actors/config/config.ts";
import { savedPolicy } from "../../../actors/policy/saved-policy.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { writeTinyModel } from "../../../scripts/setup/tiny-model.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, stopRunAt } from "../supervisor/tiny-run.ts";
import { BigramServer } from "./bigram-server.ts";

const server = new BigramServer(new Tokenizer().size);
const home = temporaryFolder();
const model = join(home, "model");
beforeAll(() => writeTinyModel(model));
afterAll(() => server.stop());

const configOf = (updates: number): RunConfig =>
  aConfig({
    env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
    model: { path: model },
    engine: { name: "tinker", url: server.url },
    rollout: { groups: 8, groupSize: 8, contextTokensMax: 200 },
    sampler: { count: 2, slots: 32 },
    warmStart: {
      imitate: "demonstrator",
      boards: 100,
      stages: [{ name: "form", babble: 1, steps: 20, learningRate: 1, warmUpSteps: 0 }],
    },
    learner: {
      algorithm: "rloo",
      updates,
      learningRate: 0.5,
      decay: "none",
      filter: { strategy: "all" },
      kl: { coefficient: 0.01, place: "reward", estimator: "k1" },
    },
    validate: { episodes: 32, everyUpdates: 100, temperature: 1 },
    checkpoint: { everyUpdates: 2 },
    metrics: { port: 0 },
  });

const reportOf = (folder: string) => JSON.parse(readFileSync(join(folder, "report.json"), "utf8"));

test("a run learns, saves its state at the server, and goes on after a stop with a server that was started again", async () => {
  const folder = join(home, "run");
  expect((await stopRunAt(folder, configOf(12), "update 5/12")).ok).toBe(true);
  const checkpoint = readdirSync(join(folder, "checkpoints")).at(-1)!;
  expect(readdirSync(join(folder, "checkpoints", checkpoint)).sort()).toEqual(["SHA256SUMS", "state.json"]);
  const { served, steps } = JSON.parse(readFileSync(join(folder, "checkpoints", checkpoint, "state.json"), "utf8"));
  expect(served).toMatch(/^tinker:\/\/model_\d+\/weights\/u\d+-\d+$/);
  expect(server.models.size).toBe(0);
  // Log-probabilities of the reference, for each update.
  expect(server.asked.filter((path) => path === "forward").length).toBeGreaterThanOrEqual(5);

  server.restart();
  server.asked.length = 0;
  await playRun(folder, configOf(12));
  expect(server.asked.filter((path) => path === "load_weights")).toHaveLength(1);
  expect(server.asked.filter((path) => path === "optim_step")).toHaveLength(12 - steps.policy);
  const { success, engine, device, updates, logProbGap } = reportOf(folder);
  expect([updates, engine, device]).toEqual([12, "tinker", `${server.url}, bigrams`]);
  expect(logProbGap).toBeLessThan(1e-6);
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const kls = db.query("SELECT value FROM metrics WHERE name = 'loss/kl' ORDER BY step").values().map(Number);
  db.close();
  // From the model without adapters, which writes each token alike: the divergence is log(384) nats less the entropy.
  expect(Math.min(...kls)).toBeGreaterThan(4);
  expect(Math.max(...kls)).toBeLessThan(Math.log(384));
  expect(success.before).toBeGreaterThan(0.2);
  expect(success.after).toBeGreaterThan(0.9);
  const refused = savedPolicy(folder, configOf(12), null).then(String, (error: Error) => error.message);
  expect(await refused).toContain("its weights are at the server of engine tinker, as tinker://model_");
}, 300_000);

test("a model that is gone ends the learner with one line", async () => {
  const folder = join(home, "gone");
  server.interfere = (path) => {
    if (path === "optim_step" && server.asked.filter((asked) => asked === path).length > 3) server.restart();
    return null;
  };
  server.asked.length = 0;
  const end = await playRun(folder, configOf(12)).then(String, (error: Error) => error.message);
  expect(end).toMatch(/^learner exit code 1 \(.*optim_step: answers 400: Model model_\d+ not loaded\)$/);
  server.interfere = () => null;
}, 300_000);

test("in async mode no reply is written by other weights than its version's, though newer ones are published meanwhile", async () => {
  const folder = join(home, "async");
  const config = configOf(12);
  server.mixed = 0;
  await playRun(folder, { ...config, learner: { ...config.learner, mode: "async", stalenessMax: 1 } });
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const [lag] = db.query("SELECT max(value) FROM metrics WHERE name = 'train/staleness'").values()[0] as [number];
  db.close();
  expect(lag).toBeGreaterThan(0);
  expect(server.mixed).toBe(0);
  expect(reportOf(folder).success.after).toBeGreaterThan(0.9);
  expect(server.models.size).toBe(0);
}, 120_000);
