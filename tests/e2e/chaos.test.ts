/** `bun run chaos`: its result for a run that kept its promises, and for logs that show broken promises. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Store } from "../../actors/metrics-sink/store.ts";
import type { EpisodeRow } from "../../actors/protocol.ts";
import { inspect } from "../../scripts/chaos/inspect.ts";
import { isAlive, LogTail } from "../../scripts/chaos/watch.ts";
import { scored, ticket } from "../actors/sampler/stage.ts";
import { figure, ms } from "../figure.ts";
import { aDigest } from "../fixtures.ts";
import { childEnv, command, commandHere } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { LONG } from "./run-process.ts";

setDefaultTimeout(LONG);

test("a run survives kills: how many, how soon each actor recovered, nothing lost", async () => {
  const { code, out, err } = await command(["chaos", "--minutes", "0.5", "--seed", "770", "--json"]);
  expect({ code, err: code === 0 ? "" : `${out}${err}` }).toEqual({ code: 0, err: "" });
  const result = JSON.parse(out.trim().split("\n").at(-1)!);
  // Of this seed.
  expect(result.kills).toEqual({ "learner SIGKILL": 2 });
  expect(result).toMatchObject({ ok: true, episodesLost: 0, duplicatesTrained: 0, mixedVersions: 0, orphans: 0 });
  expect(result).toMatchObject({ unrecovered: 0, problems: [] });
  expect(result.recoveryMs.max).toBeGreaterThan(result.detectionMs.max);
  figure("SIGKILL of the learner, twice", {
    kills: 2,
    noticed: ms(result.detectionMs.max),
    "serving again": ms(result.recoveryMs.max),
    "lost, twice, mixed or left": 0,
  });
});

test("a signal ends the run too", async () => {
  const folder = join(temporaryFolder(), "run");
  const tail = new LogTail(join(folder, "log.jsonl"));
  const chaos = Bun.spawn([process.execPath, "scripts/run.ts", "chaos", "--run-dir", folder], {
    env: childEnv(),
    stderr: "ignore",
  });
  // Nothing tells a stranger of a line in a log, or of the end of a process.
  while (!tail.entries.some(({ child }) => child === "learner")) {
    await Bun.sleep(20);
    tail.read();
  }
  const alive = () => tail.entries.filter(({ kind, pid }) => kind === "started" && isAlive(pid!));
  chaos.kill("SIGTERM");
  expect(await chaos.exited).toBe(1);
  for (let i = 0; i < 250 && alive().length > 0; i++) await Bun.sleep(20);
  expect(alive()).toEqual([]);
});

test.each([
  [["--minutes", "0.4"], "--minutes takes 0.5 or more, got 0.4"],
  [["--run-dir", "tests"], "tests exists; choose another --run-dir"],
  [["--only", "everyone"], "--only takes one of "],
])("a kill that could not be judged is refused: %p", async (flags, refusal) => {
  const { code, err } = await commandHere(["chaos", ...flags]);
  expect([code, err]).toEqual([2, expect.stringContaining(refusal)]);
});

interface Trained {
  readonly episode: string;
  readonly update: number;
  readonly letter?: string;
  readonly attempt?: number;
  readonly atMs?: number;
}

const row = ({ episode, update, letter = "a", attempt = 0 }: Trained): EpisodeRow => {
  const outcome = scored(episode);
  if (!("trajectory" in outcome)) throw new Error("it has none");
  const trajectory = { ...outcome.trajectory, digest: aDigest(letter) };
  return {
    ticket: ticket(episode, { attempt }),
    sampler: "s",
    outcome: { ...outcome, trajectory },
    update,
    advantage: 0,
  };
};

/** 4 groups of 4, twice: what the run of this command is made of. */
const whole: Trained[] = [1, 2].flatMap((update) =>
  Array.from({ length: 16 }, (_, i) => ({ episode: `u${update - 1}.g${i >> 2}.m${i % 4}`, update })),
);

/** What `bun run chaos` finds in a log with these rows, of a run whose second learner began at 1000 ms. */
async function found(
  trained: readonly Trained[],
  pids: readonly number[] = [],
  checkpoint = "u000002",
): Promise<object> {
  // Weights in shared memory are named by the run: no other test may have a run of that name.
  const folder = temporaryFolder();
  mkdirSync(join(folder, "checkpoints", checkpoint), { recursive: true });
  let now = 0;
  const store = new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => now });
  store.startSession({ name: "run", env: "FrozenLake", updates: 2, seed: 1 });
  for (const [atMs, rows] of Map.groupBy(trained, (one) => one.atMs ?? 500)) {
    now = atMs;
    store.write({ points: [], events: [], episodes: rows.map(row) });
  }
  store.close();
  return inspect(folder, { updates: 2, pids, learnerStartsMs: [0, 1000] });
}

describe("in a log it finds", () => {
  const nothing = { episodesLost: 0, duplicatesTrained: 0, mixedVersions: 0, orphans: 0 };
  const [first, second] = whole as [Trained, Trained];

  test("nothing where all is well, also where a learner made an update again after it was killed", async () => {
    expect(await found(whole)).toEqual(nothing);
    expect(await found([...whole, { ...first, attempt: 1, atMs: 1500 }])).toEqual(nothing);
  });

  test("an episode that is not there", async () => {
    expect(await found(whole.slice(1))).toEqual({ ...nothing, episodesLost: 1 });
    expect(await found(whole.slice(0, -1))).toEqual({ ...nothing, episodesLost: 1 });
  });

  test("an episode that one learner trained on twice, or that two updates were made from", async () => {
    expect(await found([...whole, { ...first, attempt: 1 }])).toEqual({ ...nothing, duplicatesTrained: 1 });
    const again = { ...first, update: 2, attempt: 1, atMs: 1500 };
    expect(await found([...whole, again])).toEqual({ ...nothing, duplicatesTrained: 1 });
  });

  test("an update made from the episodes of two policies", async () => {
    expect(await found([first, { ...second, letter: "b" }, ...whole.slice(2)])).toEqual({
      ...nothing,
      mixedVersions: 1,
    });
  });

  test("a process that is left, and a checkpoint that was not finished", async () => {
    expect(await found(whole, [process.pid])).toEqual({ ...nothing, orphans: 1 });
    expect(await found(whole, [], ".u000002")).toEqual({ ...nothing, orphans: 1 });
  });

  test("the lines after half a line of a supervisor that was killed, and each line once", () => {
    const path = join(temporaryFolder(), "log.jsonl");
    const tail = new LogTail(path);
    tail.read();
    writeFileSync(path, '{"kind":"one"}\n{"kind":"ha{"kind":"two","text":"é"}\n{"kind":"th');
    tail.read();
    appendFileSync(path, 'ree"}\n');
    tail.read();
    expect(tail.entries).toEqual([{ kind: "one" }, { kind: "two", text: "é" }, { kind: "three" }]);
  });
});
