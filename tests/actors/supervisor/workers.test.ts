/** Actors as Bun workers of one process: what happens when one of them hangs, throws or is killed. */

import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { startCluster } from "../../../actors/supervisor/cluster.ts";
import { endsOfTests } from "../../ends.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { Events, testActor, workerSupervisor } from "./stage-supervisor.ts";
import { learnt, playRun, tinyConfig } from "./tiny-run.ts";

setDefaultTimeout(300_000);

const ends = endsOfTests();

async function start(...args: Parameters<typeof workerSupervisor>) {
  const made = await workerSupervisor(...args);
  ends.push(() => made.supervisor.stop("the test is over"));
  return made;
}

describe("a supervisor of workers", () => {
  test("hears from a worker where it listens, gets its log, and stops it", async () => {
    const { supervisor, events, lines } = await start();
    supervisor.start(testActor("child", { behaviour: "good", note: "a-token-for-tests" }));
    expect((await events.next("ready", "child")).url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+$/);
    await supervisor.stop("enough");
    expect(lines.map((line) => JSON.parse(line).text)).toEqual(["(hidden)", "enough", "enough"]);
    expect(events.of("exited", "child")).toMatchObject([{ pid: process.pid, code: 0, signal: null, asked: true }]);
  });

  test("replaces a worker in an endless loop", async () => {
    const { supervisor, events } = await start();
    let starts = 0;
    const settings = () => ({ behaviour: ++starts === 1 ? "busy" : "good" });
    supervisor.start(testActor("child", null, { settings }));
    expect((await events.next("silent", "child")).doing).toBe("busy");
    expect(await events.next("exited", "child")).toMatchObject({ code: null, signal: "SIGKILL", asked: false });
    await events.next("ready", "child", 2);
  });

  test("replaces a worker whose computation hangs, and one that throws, and names the first cause", async () => {
    const hung = await start({ progressDeadlineMs: 1000, restartsMax: 0 });
    hung.supervisor.start(testActor("child", { behaviour: "hung" }));
    expect((await hung.supervisor.ended).reason).toMatch(/first cause: no result of its computation for \d+ ms/);

    const { supervisor, lines } = await start({ restartsMax: 1 });
    supervisor.start(testActor("child", { behaviour: "crash" }));
    expect((await supervisor.ended).reason).toContain("first cause: exit code 1 (TypeError: this actor has a bug)");
    expect(lines.filter((line) => line.includes('"kind":"crash"'))).toHaveLength(2);
  });

  test("names the module that cannot be loaded", async () => {
    const { supervisor } = await start({ restartsMax: 0 });
    supervisor.start(testActor("child", {}, { entry: join(temporaryFolder(), "no-such-module.ts") }));
    expect((await supervisor.ended).reason).toContain("no-such-module.ts");
  });
});

test("a run whose workers are killed, one of each kind, learns the same", async () => {
  const undisturbed = join(temporaryFolder(), "run");
  await playRun(undisturbed, tinyConfig(undisturbed, { samplers: 1, updates: 4, warmStart: "shared" }));

  const folder = join(temporaryFolder(), "run");
  mkdirSync(folder);
  const config = tinyConfig(folder, { samplers: 1, updates: 4, warmStart: "shared" });
  const { checkpoint, ...rest } = config;
  const workers = new Map<string, Worker>();
  const OriginalWorker = Worker;
  globalThis.Worker = class extends OriginalWorker {
    constructor(entry: string | URL) {
      super(entry);
      const role = /([\w-]+)\/main\.ts$/.exec(String(entry))?.[1];
      if (role !== undefined) workers.set(role, this);
    }
  };
  const events = new Events();
  const roles = ["sampler", "env-server", "metrics-sink", "learner"];
  const cluster = await startCluster({
    run: "run",
    folder,
    config: { ...rest, checkpoint: { ...checkpoint, everyUpdates: 1 }, actors: "workers" },
    event: (event) => events.add(event),
    output(actor, line) {
      if (actor !== "learner" || !/"text":"update [1-3]/.test(line)) return;
      for (const role of roles.splice(0, roles.length === 4 ? 3 : 1)) workers.get(role)!.terminate();
    },
  });
  expect(await cluster.ended).toEqual({ ok: true, reason: "learner finished" });
  globalThis.Worker = OriginalWorker;
  // A machine that is too busy may have others replaced besides.
  const killed = events.all.flatMap((event) => (event.kind === "exited" && !event.asked ? [event.child] : []));
  expect(killed).toEqual(expect.arrayContaining(["sampler-0", "env-server-0", "metrics-sink", "learner"]));
  expect(await learnt(folder)).toBe(await learnt(undisturbed));
});
