/** The supervisor with real processes, which are killed, stopped or orphaned, or crash. */

import { describe, expect, setDefaultTimeout, setSystemTime, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { TicketBook } from "../../../actors/learner/tickets.ts";
import type { Tell } from "../../../actors/protocol.ts";
import { endsOfTests } from "../../ends.ts";
import { figure, ms } from "../../figure.ts";
import { ticket } from "../sampler/stage.ts";
import { realSupervisor, testActor } from "./stage-supervisor.ts";

setDefaultTimeout(300_000);

const ends = endsOfTests();

async function start(...args: Parameters<typeof realSupervisor>) {
  const made = await realSupervisor(...args);
  ends.push(() => made.supervisor.stop("the test is over"));
  return made;
}

/** Zombies count as dead: only their parent has not noticed yet. */
function alive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2)[0] !== "Z";
  } catch {
    return false;
  }
}

async function gone(pids: readonly number[]): Promise<void> {
  // Only a parent gets an event when a process ends.
  while (pids.some(alive)) await Bun.sleep(5);
}

describe("a supervisor of real processes", () => {
  test("learns from a child its address and what it is doing", async () => {
    const { supervisor, events, lines } = await start({
      firstMessages: () => [{ type: "roster", learner: null, metricsSink: null, envServers: [] }],
    });
    supervisor.start(testActor("child", { behaviour: "good", note: "a-token-for-tests" }));
    expect((await events.next("ready", "child")).url).toStartWith("ws://127.0.0.1:");
    while (supervisor.children[0]?.doing !== "heard roster") await Bun.sleep(5);
    expect(supervisor.children[0]).toMatchObject({ lastMessage: "roster", restarts: 0, role: "sampler" });
    expect(supervisor.children[0]!.rssBytes).toBeGreaterThan(1e6);
    await supervisor.stop("enough");
    // The log hides the token, which the child wrote. The child left because the supervisor asked it to.
    expect(lines.map((line) => JSON.parse(line).text)).toEqual(["(hidden)", "enough", "enough"]);
    expect(events.of("exited", "child")).toMatchObject([{ code: 0, signal: null, asked: true }]);
  });

  test("replaces a child killed with SIGKILL, with fresh settings", async () => {
    const { supervisor, events, lines } = await start();
    let starts = 0;
    const settings = () => ({ behaviour: "good", note: `start ${++starts}` });
    supervisor.start(testActor("child", null, { settings }));
    const first = await events.next("ready", "child");
    const { pid } = events.of("started", "child")[0]!;
    process.kill(pid, "SIGKILL");
    expect(await events.next("exited", "child")).toMatchObject({ pid, code: null, signal: "SIGKILL", asked: false });
    expect(await events.next("restarted", "child")).toMatchObject({ restarts: 1 });
    expect((await events.next("ready", "child", 2)).url).not.toBe(first.url);
    expect(lines.map((line) => JSON.parse(line).text)).toEqual(["start 1", "start 2"]);
  });

  test("notices that a child stopped with SIGSTOP is silent, and replaces it", async () => {
    const { supervisor, events } = await start();
    supervisor.start(testActor("child", { behaviour: "good" }));
    await events.next("ready", "child");
    const { pid } = events.of("started", "child")[0]!;
    while (supervisor.children[0]?.doing !== "good") await Bun.sleep(5);
    process.kill(pid, "SIGSTOP");
    const silent = await events.next("silent", "child");
    expect(silent.doing).toBe("good");
    expect(silent.silentMs).toBeGreaterThan(1000);
    await events.next("ready", "child", 2);
    await gone([pid]);
  });

  test("ends the run if a child in an endless loop is silent, and says what the child did last", async () => {
    const { supervisor, events } = await start({ restartsMax: 0 });
    supervisor.start(testActor("child", { behaviour: "busy" }));
    await events.next("silent", "child");
    expect(await supervisor.ended).toMatchObject({ ok: false });
    expect((await supervisor.ended).reason).toMatch(
      /first cause: silent for \d+ ms \(limit 1000 ms\), its last heartbeat said: busy; the last message that it received: none$/,
    );
  });

  test("ends the run if a child sends heartbeats but its computation hangs, and says what the child did last", async () => {
    const limits = { restartsMax: 0, progressDeadlineMs: 1000 };
    const firstMessages = (): Tell[] => [{ type: "roster", learner: null, metricsSink: null, envServers: [] }];
    const { supervisor, events } = await start({ ...limits, firstMessages });
    supervisor.start(testActor("child", { behaviour: "hung" }));
    const stuck = await events.next("stuck", "child");
    expect(stuck).toMatchObject({ child: "child", doing: "heard roster", lastMessage: "roster" });
    expect((await supervisor.ended).reason).toMatch(
      /first cause: no result of its computation for \d+ ms \(limit 1000 ms\), its last heartbeat said: heard roster; the last message that it received: roster$/,
    );
    figure("hang", { noticed: ms(stuck.workingMs), limit: ms(limits.progressDeadlineMs) });
    expect(stuck.workingMs).toBeLessThan(2 * limits.progressDeadlineMs);
  });

  test("gives up no child when the wall clock is set an hour forward and back", async () => {
    const { supervisor, events } = await start();
    supervisor.start(testActor("child", { behaviour: "good" }));
    await events.next("ready", "child");
    const leases = new TicketBook({ clock: realClock, leaseMs: 60_000, attemptsMax: 3 });
    const tickets = Array.from({ length: 100 }, (_, i) => ticket(`e${i}`));
    void leases.issue(tickets);
    leases.grant("sampler", tickets.length, 1);
    const began = realClock.now();
    try {
      for (const hours of [1, -2]) {
        setSystemTime(Date.now() + hours * 3_600_000);
        // Waits for three more heartbeats of the child.
        for (let [beats, last] = [0, 0]; beats < 3; await Bun.sleep(5)) {
          const { silentMs } = supervisor.children[0]!;
          if (silentMs < last) beats++;
          last = silentMs;
        }
      }
    } finally {
      setSystemTime();
    }
    expect(realClock.now() - began).toBeLessThan(3_600_000);
    const { length: given } = events.of("silent", "child");
    expect([given, supervisor.children[0]!.restarts, leases.counts.expired, leases.leasedInAll]).toEqual([
      0, 0, 0, 100,
    ]);
    figure("clock jump, sleep", {
      "jumps of 1 h": 2,
      "given up": given,
      "leases of 100 expired": leases.counts.expired,
    });
  });

  test("ends the run when a child crashes again and again, and names the first cause", async () => {
    const { supervisor, events } = await start();
    supervisor.start(testActor("good", { behaviour: "good" }));
    supervisor.start(testActor("child", { behaviour: "crash" }));
    const end = await supervisor.ended;
    expect(end.ok).toBe(false);
    expect(end.reason).toMatch(
      /^child failed 4 times in [\d.]+ s, and at most 3 restarts in 60 s are allowed; first cause: exit code 1 \(TypeError: this actor has a bug\)$/,
    );
    expect(events.of("restarted", "child")).toHaveLength(3);
    expect(events.of("exited", "good")).toHaveLength(1);
  });

  test("names what is wrong with the settings of a child that refuses them", async () => {
    const { supervisor } = await start();
    supervisor.start(testActor("child", { behaviour: "sing" }));
    expect((await supervisor.ended).reason).toContain(
      'exit code 1 (cannot start: behaviour: Invalid option: expected one of "good"',
    );
  });

  test("ends the run without an error when the child with `endsRun` finishes", async () => {
    const { supervisor, events } = await start();
    supervisor.start(testActor("other", { behaviour: "good" }));
    await events.next("ready", "other");
    supervisor.start(testActor("child", { behaviour: "finish" }, { endsRun: true }));
    expect(await supervisor.ended).toEqual({ ok: true, reason: "child finished" });
  });

  test("kills a child that neither a message nor SIGTERM stops", async () => {
    const { supervisor, events } = await start({ stopGraceMs: 100, killGraceMs: 100 });
    supervisor.start(testActor("deaf", { behaviour: "deaf" }));
    await events.next("ready", "deaf");
    await supervisor.stop("enough");
    expect(events.of("exited", "deaf")).toMatchObject([{ signal: "SIGKILL", asked: true }]);
  });

  test("leaves no child behind when it is killed itself, not even a stopped one", async () => {
    const parent = Bun.spawn([process.execPath, join(import.meta.dir, "supervisor-process.ts")], {
      stdout: "pipe",
    });
    const reader = parent.stdout.getReader();
    const pids: number[] = JSON.parse(new TextDecoder().decode((await reader.read()).value));
    expect(pids.map(alive)).toEqual([true, true, true]);
    // A stopped child cannot notice that its parent is gone.
    process.kill(pids[2]!, "SIGSTOP");
    parent.kill("SIGKILL");
    await parent.exited;
    await gone(pids);
    expect(pids.map(alive)).toEqual([false, false, false]);
  });
});

test("an actor started by hand reports that only the supervisor starts it", async () => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "test-actor.ts")], {
    stdin: "ignore",
    stderr: "pipe",
  });
  expect(JSON.parse(await child.stderr.text()).text).toContain("only the supervisor starts this program");
  expect(await child.exited).toBe(1);
});
