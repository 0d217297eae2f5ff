/** What a program does with a run and its newest policy. programs.test.ts runs whole programs. */
import { beforeAll, expect, spyOn, test } from "bun:test";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../actors/config/config.ts";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { lockRun } from "../../actors/supervisor/run-lock.ts";
import { loadPolicy, type ReplyOptions } from "../../library/policy.ts";
import { NewestPolicy, Run } from "../../library/run.ts";
import { train } from "../../library/train.ts";
import { playedRow } from "../actors/metrics-sink/fake-run.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { trainOnce } from "./trained.ts";

const folder = join(temporaryFolder(), "mine");
const checkpoints = join(folder, "checkpoints");
const names = () => readdirSync(checkpoints).sort();

/** Asks a policy for a reply. @returns "replied", or the error */
const asking = (policy: Pick<NewestPolicy, "reply">) => () =>
  policy.reply([{ role: "user", content: "1 left" }], { tokensMax: 8 }).then(() => "replied", String);

beforeAll(() => trainOnce(folder), 60_000);

test("a newer checkpoint takes the next replies, and those in progress end with the policy that began them", async () => {
  const newest = new NewestPolicy(folder);
  const ask = asking(newest);
  const before = ask();
  cpSync(join(checkpoints, names().at(-1)!), join(checkpoints, "u000009"), { recursive: true });
  expect(await Promise.all([before, ask()])).toEqual(["replied", "replied"]);
  using last = await newest.newest();
  expect(last.checkpoint).toBe("u000009");
  newest.close();
  rmSync(join(checkpoints, "u000009"), { recursive: true });
});

test("a policy that could not be loaded is loaded by the next call", async () => {
  const newest = new NewestPolicy(folder);
  const ask = asking(newest);
  const away = `${folder}-config.json`;
  renameSync(join(folder, "config.json"), away);
  expect(await ask()).toContain("config.json");
  renameSync(away, join(folder, "config.json"));
  expect(await ask()).toBe("replied");
  newest.close();
});

test("a policy that a program was handed lives on after a newer checkpoint and after the run", async () => {
  const newest = new NewestPolicy(folder);
  using mine = await newest.newest();
  cpSync(join(checkpoints, names().at(-1)!), join(checkpoints, "u000009"), { recursive: true });
  await asking(newest)();
  const ask = asking(mine);
  expect(await ask()).toBe("replied");
  newest.close();
  expect(await ask()).toBe("replied");
  rmSync(join(checkpoints, "u000009"), { recursive: true });
});

test("a closed run ends the replies in progress in order, and loads no policy for later ones", async () => {
  const newest = new NewestPolicy(folder);
  const ask = asking(newest);
  await ask();
  const before = ask();
  newest.close();
  expect(await before).toBe("replied");
  expect(await ask()).toBe(`Error: the run is closed; loadPolicy(${JSON.stringify(folder)}) loads its policy`);
});

test("a run in progress keeps its length when it is resumed at the same time", async () => {
  const config = () => readFileSync(join(folder, "config.json"), "utf8");
  const before = config();
  const lock = lockRun(folder);
  const refused = await train({ learner: { updates: 9 } }, { resume: folder }).catch(String);
  lock.release();
  expect(refused).toContain("is in use by process");
  expect(config()).toBe(before);
  expect(existsSync(join(folder, "report.json"))).toBe(true);
});

test("a reply's numbers are not replaced by their defaults where they are none", async () => {
  using policy = await loadPolicy(folder);
  const ask = (options: ReplyOptions) => policy.reply([{ role: "user", content: "1 left" }], options).catch(String);
  expect(await ask({ seed: Number.NaN })).toContain("seed must be a finite number, got NaN");
  expect(await ask({ tokensMax: Number.POSITIVE_INFINITY })).toContain("tokensMax must be a finite number");
});

test.each([-1, Number.NaN, Number.POSITIVE_INFINITY])("a temperature of %p is refused at once", async (temperature) => {
  const text = `ConfigError: temperature must be a finite number of at least 0, got ${temperature}`;
  expect(await loadPolicy(folder, { temperature }).then((policy) => policy.close(), String)).toBe(text);
  using policy = await loadPolicy(folder);
  expect(await policy.evaluate({ temperature }).catch(String)).toBe(text);
});

test("an evaluation that is refused rejects, and throws nothing before", async () => {
  using policy = await loadPolicy(folder);
  expect(await policy.evaluate({ env: { tag: "Bandti" } }).catch(String)).toContain('unknown env tag "Bandti"');
});

test("an episode of a run that plays several envs is of the named one", async () => {
  const mixed = join(temporaryFolder(), "mixed");
  cpSync(folder, mixed, { recursive: true });
  const config = JSON.parse(readFileSync(join(mixed, "config.json"), "utf8"));
  config.env.mix = ["Bandit", "SimpleSokoban"].map((tag) => ({ tag }));
  writeFileSync(join(mixed, "config.json"), JSON.stringify(config));
  using policy = await loadPolicy(mixed);
  expect(await policy.episode(null, 7).catch(String)).toContain("name the env of the episode: Bandit, SimpleSokoban");
  expect((await policy.episode("SimpleSokoban", 7)).finalObservation).toContain("######");
});

test("another env is evaluated with budgets of its own, not with the one turn of the run's env", async () => {
  using policy = await loadPolicy(folder);
  expect(policy.config.env).toMatchObject({ tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 });
  const budgets = (tag: string) => policy.evaluated({ env: { tag } }).env;
  expect(budgets("SimpleSokoban")).toMatchObject({ turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5 });
  expect(budgets("game_2048")).toMatchObject({ turnsMax: 800, actionsMax: 700, actionsPerTurnMax: 1 });
  expect(budgets("Bandit")).toMatchObject({ turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 });
});

/** A run without actors, resumed where `earlier` ends the record. */
function recordedRun(earlier: readonly number[]) {
  const folder = temporaryFolder();
  const store = new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => 0 });
  const write = (step: number, values: Partial<Record<MetricName, number>> = {}) => {
    const all = Object.entries({ ...values, "total/updates": step }) as [MetricName, number][];
    store.write({
      points: all.map(([name, value]) => ({ name, actor: "learner", step, value })),
      events: [],
      episodes: [],
    });
  };
  const save = () => mkdirSync(join(folder, "checkpoints", "u000003"), { recursive: true });
  for (const update of earlier) write(update);
  const { promise: ended, resolve } = Promise.withResolvers<{ ok: boolean; reason: string }>();
  const cluster = { ended, children: () => [], save, stop: () => ended };
  const run = new Run({ folder, config: RunConfig.parse({}) }, cluster, store.cursor(), () => {});
  return { run, store, write, end: () => resolve({ ok: true, reason: "enough" }) };
}

test("a save does not wait for the updates that a killed program made after its last checkpoint", async () => {
  const { run, store } = recordedRun([1, 2, 100]);
  using _ = store;
  expect(await run.save()).toBe(join(run.folder, "checkpoints", "u000003"));
});

test("a save does not wait for the updates that a roll-back gave up", async () => {
  const { run, store, write } = recordedRun([]);
  using _ = store;
  for (const update of [1, 2, 3, 4, 5, 3]) write(update);
  expect(await run.save()).toBe(join(run.folder, "checkpoints", "u000003"));
});

test("an update that trained on nothing has no success", async () => {
  const { run, store, write, end } = recordedRun([]);
  using _ = store;
  write(1, { "train/success": 0.5 });
  write(2);
  end();
  expect((await Array.fromAsync(run.updates())).map(({ success }) => success)).toEqual([0.5, null]);
});

test("an episode that a resumed run replaces while a program reads is given once, in its new form", async () => {
  const { run, store, end } = recordedRun([]);
  using _ = store;
  const record = (success: boolean) => store.write({ points: [], events: [], episodes: [playedRow({}, success)] });
  record(false);
  end();
  const listed = spyOn(Store.prototype, "episodes");
  listed.mockImplementationOnce((...asked) => {
    const page = store.episodes(...asked);
    record(true);
    return page;
  });
  const outcomes = (await Array.fromAsync(run.episodes())).map(({ outcome }) => "turns" in outcome && outcome.success);
  listed.mockRestore();
  expect(outcomes).toEqual([true]);
});
