/** `bun run diagnose` as a process, over runs as a metrics sink leaves them. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Store } from "../../actors/metrics-sink/store.ts";
import { commandHere } from "./command.ts";
import { removeTemporaryFolders, temporaryFolder } from "./temporary.ts";

setDefaultTimeout(60_000);
afterAll(removeTemporaryFolders);

const folder = temporaryFolder();

/** A run of 40 updates, whose groups differ as much as `left` says. */
function record(
  name: string,
  left: (update: number) => number,
  { config, validated = {} }: { config?: object; validated?: Record<string, number> } = {},
): string {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  if (config !== undefined) writeFileSync(join(path, "config.json"), JSON.stringify(config));
  const store = new Store({ path: join(path, "run.sqlite"), durability: "normal", wallClock: () => 1000 });
  store.startSession({ name, env: "Bandit+Ice", updates: 40, seed: 1 });
  const points = Array.from({ length: 40 }, (_, i) => i + 1).flatMap((step) => [
    { name: "train/success", actor: "learner", step, value: 0.3 * Math.min(1, left(step - 10)) },
    { name: "train/in_group_std", actor: "learner", step, value: 2 * left(step) },
    { name: "train/kept_groups", actor: "learner", step, value: 1 },
  ]);
  for (const [metric, value] of Object.entries(validated)) {
    for (let step = 0; step < 40; step += 4) points.push({ name: metric, actor: "learner", step, value });
  }
  store.write({ points, events: [], episodes: [] });
  store.close();
  return path;
}

const trapped = record("trapped", (update) => Math.max(0, 1 - update / 30), {
  config: { health: { ladder: ["stop"] } },
});
const healthy = record("healthy", () => 1);

test("says when a run fell, why, and what would have been done about it", async () => {
  const { code, out } = await commandHere(["diagnose", trapped, healthy, "--json"]);
  expect(code).toBe(0);
  expect(out).toContain(`${trapped}: collapsed after 40 updates`);
  expect(out).toMatch(/update \d+: warning: in-group reward std is \d\.\d+, at the start \d\.\d+/);
  expect(out).toMatch(/update \d+: intervention: stop \(rung 1 of 1\): the run ends here; collapsed: /);
  expect(out).toMatch(/RAGEN-2 would have stopped it at update \d+: reward_variance_collapse: /);
  expect(out).toContain(`${healthy}: healthy after 40 updates\n  healthy all the time`);
  const { runs } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  expect(runs.map(({ verdict, updates }: { verdict: string; updates: number }) => [verdict, updates])).toEqual([
    ["collapsed", 40],
    ["healthy", 40],
  ]);
});

test("judges a validation over a mix by the env that is solved least, as the run itself did", async () => {
  const validated = (low: number) => ({
    "validate/success": (0.6 + low) / 2,
    "validate/success{env=Bandit}": 0.6,
    "validate/success{env=Ice}": low,
  });
  const lame = record("lame", () => 1, { validated: validated(0) });
  const sound = record("sound", () => 1, { validated: validated(0.2) });
  const { out } = await commandHere(["diagnose", lame, sound]);
  expect(out).toMatch(/RAGEN-2 would have stopped it at update \d+: low_validation_success: /);
  expect(out.split(sound)[1]).not.toContain("low_validation_success");
});

test("tries other thresholds", async () => {
  const { out } = await commandHere(["diagnose", trapped, "--health.trap.startUpdates=40", "--health.ladder=[]"]);
  expect(out).toContain(`${trapped}: healthy after 40 updates`);
});

test.each([
  [[], /say which: the folders of runs/],
  [["nowhere"], /no run in nowhere: there is no run.sqlite/],
  [[healthy, "--learner.gamma=1"], /only health\.… can be changed/],
  [[healthy, "--health.trap.patiense=1"], /unknown key health\.trap\.patiense/],
  [[healthy, "--health.trap.patience=0"], /expected number to be >0/],
])("%p is refused with exit code 2 and one line", async (args, told) => {
  const { code, out, err } = await commandHere(["diagnose", ...args]);
  expect({ code, out, lines: err.trimEnd().split("\n").length }).toEqual({ code: 2, out: "", lines: 1 });
  expect(err).toMatch(told);
});
