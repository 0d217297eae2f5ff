import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startFrom } from "../../scripts/cluster.ts";
import { configOf } from "../actors/training/stage.ts";
import { temporaryFolder } from "./temporary.ts";

function run(settings: object) {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "config.json"), JSON.stringify(configOf(settings as never)));
  const checkpoint = join(folder, "checkpoints", "u000009");
  mkdirSync(checkpoint, { recursive: true });
  return { folder, checkpoint };
}
const override = (path: string, text: string) => ({ path, text, source: `--${path}=${text}` });
const settingsOf = async (from: string, ...overrides: ReturnType<typeof override>[]) =>
  Object.fromEntries((await startFrom(from, overrides)).map(({ path, text }) => [path, text]));

const builtIn = run({ model: { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 32 }, env: { think: false } });

test("a checkpoint of a built-in policy gives its shape, and what its prompts need", async () => {
  expect(await settingsOf(builtIn.checkpoint)).toEqual({
    "warmStart.enabled": "false",
    "env.think": "false",
    "prompt.compat": "strict",
    "prompt.layout": "compact",
    "model.checkpoint": builtIn.checkpoint,
    "model.width": "16",
    "model.layers": "1",
    "model.heads": "2",
    "model.kvHeads": "1",
    "model.hidden": "32",
  });
});

test("a setting that contradicts the policy is refused; the same one and others are not", async () => {
  await settingsOf(builtIn.checkpoint, override("model.width", "16"), override("learner.updates", "3"));
  await expect(settingsOf(builtIn.checkpoint, override("model.width", "32"))).rejects.toThrow(
    `--model.width=32: the policy of ${builtIn.checkpoint} needs model.width 16; leave it out`,
  );
});

test("what is no run, a run without an intact checkpoint, and a checkpoint that is not there are refused", async () => {
  const none = temporaryFolder();
  await expect(startFrom(none, [])).rejects.toThrow(`--from ${none}: no run in ${none}; name a run's folder`);
  await expect(startFrom(builtIn.folder, [])).rejects.toThrow("the run has no intact checkpoint yet; wait for one");
  const other = join(builtIn.folder, "checkpoints", "u000010");
  await expect(startFrom(other, [])).rejects.toThrow(
    `--from ${other}: there is no such checkpoint; name another checkpoint`,
  );
});

test("adapters keep their rank, scale and targets", async () => {
  const lora = { rank: 4, alpha: 8, targets: ["q_proj"] };
  const { checkpoint } = run({ model: { path: "models/a", lora } });
  const settings = await settingsOf(checkpoint);
  expect(settings).toMatchObject({ "model.path": "models/a", "model.lora.rank": "4", "model.lora.alpha": "8" });
  expect(Object.keys(settings).filter((path) => path === "model.width")).toEqual([]);
});
