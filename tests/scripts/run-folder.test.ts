/** The folder of a run: what it holds, and what is refused before any process starts. */
import { afterAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { newRun, oldRun } from "../../scripts/cli/run-folder.ts";
import { configOf } from "../actors/training/stage.ts";
import { removeTemporaryFolders, temporaryFolder } from "./temporary.ts";

afterAll(removeTemporaryFolders);

const SECRETS = ["a-token-of-the-page", "a-token-of-guests", "a-token-of-samplers", "a-token-of-env-servers"] as const;
const config = configOf({
  metrics: { token: SECRETS[0] },
  join: { token: SECRETS[1], samplerToken: SECRETS[2], envServerToken: SECRETS[3] },
});
const begun = () => newRun(config, join(temporaryFolder(), "run")).folder;

test("a new folder holds the run's config without its secrets, and the run has them", () => {
  const folder = begun();
  expect(readdirSync(folder)).toEqual(["config.json"]);
  const text = readFileSync(join(folder, "config.json"), "utf8");
  expect(SECRETS.filter((secret) => text.includes(secret))).toEqual([]);
  expect(config.metrics.token).toBe(SECRETS[0]);
});

test("a folder that exists is refused for a new run, and stays as it was", () => {
  const folder = begun();
  const before = statSync(join(folder, "config.json")).mtimeMs;
  expect(() => newRun(config, folder)).toThrow(`${folder} exists; choose another --run-dir, or resume it`);
  expect(statSync(join(folder, "config.json")).mtimeMs).toBe(before);
});

test("a resumed run keeps its config; its addresses and secrets may change", () => {
  const folder = begun();
  const change = (path: string, text: string) => oldRun(folder, [{ path, text, source: `--${path}` }]).config;
  expect(() => change("learner.learningRate", "1e-4")).toThrow(
    "--learner.learningRate: a resumed run keeps its config",
  );
  expect(change("metrics.port", "0")).toEqual({
    ...config,
    metrics: { ...config.metrics, token: null, port: 0 },
    join: { ...config.join, token: null, samplerToken: null, envServerToken: null },
  });
});
