/** The supervisor's rules, with a clock and processes that a test controls. */
import { describe, expect, test } from "bun:test";
import { ActorSettings } from "../../../actors/process/settings.ts";
import { PROTOCOL_VERSION, STARTING, type Tell } from "../../../actors/protocol.ts";
import type { Exit, SpawnedChild, Spawner } from "../../../actors/supervisor/spawner.ts";
import type { ChildSpec, SupervisorOptions } from "../../../actors/supervisor/supervision.ts";
import { RestartLimit, Supervisor } from "../../../actors/supervisor/supervisor.ts";
import type { Peer, Transport } from "../../../actors/transport/transport.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";
import { Events } from "./stage-supervisor.ts";

/** A process that does what the test makes it do. SIGKILL always ends it. */
class FakeProcess implements SpawnedChild {
  readonly pid: number;
  readonly actorSettings: ActorSettings;
  readonly signals: string[] = [];
  readonly output: (line: string) => void;
  readonly #exit = Promise.withResolvers<Exit>();

  constructor(pid: number, actorSettings: string, output: (line: string) => void) {
    this.pid = pid;
    this.actorSettings = ActorSettings.parse(JSON.parse(actorSettings));
    this.output = output;
  }

  get exited(): Promise<Exit> {
    return this.#exit.promise;
  }

  kill(signal: "SIGTERM" | "SIGKILL"): void {
    this.signals.push(signal);
    if (signal === "SIGKILL") this.#exit.resolve({ code: null, signal });
  }

  exit(code: number | null, signal: string | null = null): void {
    this.#exit.resolve({ code, signal });
  }

  /** Connects as this process would, and collects its messages. */
  async connect(transport: Transport, told: string[], url: string | null = null): Promise<Peer> {
    const peer = await transport.connect(this.actorSettings.supervisor, {
      told: (_, message) => void told.push(message.type),
      asked: () => ({ type: "failed", code: "protocol", detail: "" }),
    });
    const { actor } = this.actorSettings;
    await peer.ask({ type: "hello", protocol: PROTOCOL_VERSION, actor, role: "sampler", url }, 1000);
    return peer;
  }
}

async function stage(overrides: Partial<SupervisorOptions> = {}, sharesThread = false) {
  const clock = new FakeClock();
  const events = new Events();
  const processes: FakeProcess[] = [];
  const limits = { frameBytesMax: 10_000, queuedBytesMax: 10_000 };
  const transport = new MemoryTransport(new MemoryNetwork(), { clock, token: "t", ...limits });
  const supervisor = new Supervisor({
    run: "run-1",
    token: "t",
    transport,
    spawner: {
      sharesThread,
      spawn(_, actorSettings, output) {
        const process = new FakeProcess(100 + processes.length, actorSettings, output);
        processes.push(process);
        return process;
      },
    },
    clock,
    heartbeatMs: 100,
    heartbeatDeadlineMs: 1000,
    progressDeadlineMs: 60_000,
    startDeadlineMs: 5000,
    restartsMax: 2,
    restartWindowMs: 10_000,
    stopGraceMs: 3000,
    killGraceMs: 500,
    limits: { logLevel: "info", ...limits },
    event: (event) => events.add(event),
    output: () => {},
    ...overrides,
  });
  await supervisor.listen("memory:supervisor");
  return { clock, events, processes, transport, supervisor };
}

const child = (name: string, spec: Partial<ChildSpec> = {}): ChildSpec => ({
  name,
  role: "sampler",
  entry: "entry.ts",
  settings: () => ({}),
  ...spec,
});

async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
}

const heartbeat: Tell = {
  type: "heartbeat",
  actor: "a",
  doing: "playing 3",
  lastMessage: "tickets",
  rssBytes: 5,
  load: { "queue/playing": 3 },
  weights: null,
  workingMs: 0,
};

describe("a supervisor", () => {
  test("gives a child its name, run, supervisor and settings, made for each start", async () => {
    const { supervisor, processes, events } = await stage();
    let address = "ws://one";
    supervisor.start(child("a", { settings: () => ({ learner: address }) }));
    address = "ws://two";
    processes[0]!.exit(1);
    await events.next("restarted", "a");
    expect(processes.map(({ actorSettings }) => actorSettings.settings)).toEqual([
      { learner: "ws://one" },
      { learner: "ws://two" },
    ]);
    expect(processes[0]!.actorSettings).toMatchObject({
      run: "run-1",
      actor: "a",
      supervisor: "memory:supervisor",
      token: "t",
    });
  });

  test("replaces a child whose computation gives no result, and names what it was doing", async () => {
    const { supervisor, clock, processes, transport, events } = await stage({ restartsMax: 0 });
    supervisor.start(child("a"));
    const peer = await processes[0]!.connect(transport, []);
    peer.tell({ ...heartbeat, workingMs: 60_000 } as Tell);
    await settle();
    clock.advance(100);
    expect(processes[0]!.signals).toEqual([]);
    peer.tell({ ...heartbeat, workingMs: 60_001 } as Tell);
    await settle();
    clock.advance(100);
    await settle();
    const seen = { child: "a", workingMs: 60_001, doing: "playing 3", lastMessage: "tickets" };
    expect(events.of("stuck", "a")).toEqual([{ kind: "stuck", ...seen }]);
    expect((await supervisor.ended).reason).toEndWith(
      "no result of its computation for 60001 ms (limit 60000 ms), its last heartbeat said: playing 3; the last message that it received: tickets",
    );
  });

  test("replaces a silent child, and reports its last heartbeat", async () => {
    const { supervisor, processes, events, clock, transport } = await stage();
    supervisor.start(child("a"));
    const peer = await processes[0]!.connect(transport, []);
    for (let i = 0; i < 5; i++) {
      clock.advance(900);
      peer.tell(heartbeat);
      await settle();
    }
    expect(events.of("silent", "a")).toEqual([]);
    clock.advance(1100);
    expect(events.of("silent", "a")).toEqual([
      { kind: "silent", child: "a", silentMs: 1100, doing: "playing 3", lastMessage: "tickets" },
    ]);
    expect(processes[0]!.signals).toEqual(["SIGKILL"]);
    expect(await events.next("restarted", "a")).toMatchObject({ pid: 101, restarts: 1 });
  });

  test("gives a starting child more time than a running one, within a limit", async () => {
    const { supervisor, processes, events, clock } = await stage();
    supervisor.start(child("a"));
    clock.advance(5000);
    expect(processes[0]!.signals).toEqual([]);
    clock.advance(100);
    expect(events.of("silent", "a")).toMatchObject([{ doing: "starting", silentMs: 5100 }]);
  });

  test("gives up no child because it was suspended itself", async () => {
    const { supervisor, processes, events, clock, transport } = await stage();
    supervisor.start(child("a"));
    const peer = await processes[0]!.connect(transport, []);
    peer.tell(heartbeat);
    await settle();
    clock.jump(60_000);
    expect(events.of("silent", "a")).toEqual([]);
    clock.advance(1100);
    expect(events.of("silent", "a")).toHaveLength(1);
  });

  test("ends the run at once after a RunError, with the last error of the child as the cause", async () => {
    const { supervisor, processes } = await stage();
    supervisor.start(child("a"));
    processes[0]!.output('{"level":"error","text":"the disk is full"}');
    processes[0]!.output('{"level":"info","text":"bye"}');
    processes[0]!.exit(3);
    expect(await supervisor.ended).toEqual({ ok: false, reason: "a exit code 3 (the disk is full)" });
  });

  test("never replaces a child that shares its thread: not one that failed, nor one that it killed", async () => {
    const failing = await stage({}, true);
    failing.supervisor.start(child("a"));
    failing.processes[0]!.exit(1);
    expect(await failing.supervisor.ended).toEqual({ ok: false, reason: "a exit code 1" });
    const killing = await stage({}, true);
    killing.supervisor.start(child("a"));
    killing.clock.advance(5100);
    expect((await killing.supervisor.ended).reason).toStartWith("a silent for 5100 ms (limit 5000 ms)");
    for (const { processes, events } of [failing, killing])
      expect([processes.length, events.of("restarted", "a")]).toEqual([1, []]);
  });

  test("ends the run when restarts do not help, with the first cause", async () => {
    const { supervisor, processes, events } = await stage();
    supervisor.start(child("a"));
    for (let i = 0; i < 3; i++) {
      processes[i]!.exit(1);
      await events.next("exited", "a", i + 1);
    }
    const reason = "failed 3 times in 0.0 s, and at most 2 restarts in 10 s are allowed; first cause: exit code 1";
    expect(events.of("gaveUp", "a")).toEqual([{ kind: "gaveUp", child: "a", reason }]);
    expect(await supervisor.ended).toEqual({ ok: false, reason: `a ${reason}` });
    expect(supervisor.children).toMatchObject([{ name: "a", pid: null, restarts: 2 }]);
  });

  test.each([true, false])(
    "gives up a child that fails at the same update again and again, if it has an end: %p",
    async (endsRun) => {
      const { supervisor, clock, processes, transport, events } = await stage({ restartWindowMs: 100 });
      supervisor.start(child("a", { endsRun }));
      for (let i = 0; i < 3; i++) {
        (await processes[i]!.connect(transport, [])).tell({ ...heartbeat, doing: "update 3 of 9" });
        await settle();
        clock.advance(500);
        processes[i]!.exit(1);
        await events.next("exited", "a", i + 1);
      }
      const reason =
        'failed at "update 3 of 9" 3 times in 1.0 s, and at most 2 restarts in a row are allowed; first cause: exit code 1';
      expect(events.of("gaveUp", "a")).toEqual(endsRun ? [{ kind: "gaveUp", child: "a", reason }] : []);
    },
  );

  test("announces the url of a child once, and again after a restart", async () => {
    const { supervisor, processes, events, transport } = await stage();
    const urls = () => events.of("ready", "a").map(({ url }) => url);
    supervisor.start(child("a"));
    const peer = await processes[0]!.connect(transport, []);
    await settle();
    expect(urls()).toEqual([]);
    const hello = { type: "hello", protocol: PROTOCOL_VERSION, actor: "a", role: "sampler" } as const;
    for (let i = 0; i < 2; i++) await peer.ask({ ...hello, url: "ws://127.0.0.1:1" }, 1000);
    processes[0]!.exit(1);
    await events.next("restarted", "a");
    await processes[1]!.connect(transport, [], "ws://127.0.0.1:1");
    await settle();
    expect(urls()).toEqual(["ws://127.0.0.1:1", "ws://127.0.0.1:1"]);
  });

  test("stops roles in reverse order: by message, then SIGTERM, then SIGKILL", async () => {
    const { supervisor, processes, transport, clock } = await stage();
    supervisor.start(child("sink", { role: "metrics-sink" }));
    supervisor.start(child("s-1"));
    supervisor.start(child("s-2"));
    const told: string[][] = [[], [], []];
    for (const i of [0, 1, 2]) await processes[i]!.connect(transport, told[i]!);
    const ended = supervisor.stop("enough");
    await settle();
    expect(told).toEqual([[], ["stop"], ["stop"]]);
    processes[1]!.exit(0);
    await settle();
    clock.advance(2999);
    expect(processes[2]!.signals).toEqual([]);
    clock.advance(1);
    expect(processes[2]!.signals).toEqual(["SIGTERM"]);
    clock.advance(500);
    expect(processes[2]!.signals).toEqual(["SIGTERM", "SIGKILL"]);
    await settle();
    expect(told[0]).toEqual(["stop"]);
    processes[0]!.exit(0);
    expect(await ended).toEqual({ ok: true, reason: "enough" });
    expect(clock.waitingMs).toEqual([]);
    expect(processes[1]!.signals).toEqual([]);
  });

  test("sends SIGTERM at once to a child that has not connected", async () => {
    const { supervisor, processes } = await stage();
    supervisor.start(child("a"));
    const ended = supervisor.stop("enough");
    await settle();
    expect(processes[0]!.signals).toEqual(["SIGTERM"]);
    processes[0]!.exit(0);
    await ended;
  });

  test.each([
    ["before its first heartbeat", false, { ok: true, reason: "enough" }],
    ["later", true, { ok: false, reason: "a could not leave: killed by SIGINT" }],
  ])("a learner that Ctrl-C kills %s", async (_, hadBegun, end) => {
    const { supervisor, processes, transport } = await stage();
    supervisor.start(child("a", { endsRun: true }));
    if (hadBegun) (await processes[0]!.connect(transport, [])).tell(heartbeat);
    await settle();
    const ended = supervisor.stop("enough");
    await settle();
    processes[0]!.exit(null, "SIGINT");
    expect(await ended).toEqual(end);
  });

  test("restarts nothing while the run ends, and starts nothing new", async () => {
    const { supervisor, processes } = await stage();
    supervisor.start(child("a"));
    const ended = supervisor.stop("enough");
    await settle();
    processes[0]!.exit(1);
    expect((await ended).ok).toBe(true);
    expect(processes).toHaveLength(1);
    expect(() => supervisor.start(child("b"))).toThrow("cannot start b: the run is ending");
  });

  describe("of which the system starts no process", () => {
    const full = Object.assign(new Error("too many open files"), { code: "EMFILE", errno: -24 });
    /** A spawner whose first `failures` calls fail with `error`. */
    function failing(failures: number, error: Error = full) {
      let calls = 0;
      const spawn: Spawner["spawn"] = (_, actorSettings, output) => {
        if (++calls <= failures) throw error;
        return new FakeProcess(100 + calls, actorSettings, output);
      };
      return { spawn, calls: () => calls };
    }

    test("is tried again after a while", async () => {
      const spawner = failing(2);
      const { supervisor, clock, events } = await stage({ spawner });
      supervisor.start(child("a"));
      expect(events.all).toEqual([{ kind: "startFailed", child: "a", reason: "Error: too many open files" }]);
      clock.advance(2900);
      expect(spawner.calls()).toBe(1);
      clock.advance(3200);
      expect(events.of("restarted", "a")).toEqual([{ kind: "restarted", child: "a", pid: 103, restarts: 2 }]);
      expect(supervisor.children).toMatchObject([{ name: "a", pid: 103 }]);
    });

    test("ends the run after as many failed starts as are allowed, and says why", async () => {
      const spawner = failing(100);
      const { supervisor, clock } = await stage({ spawner });
      supervisor.start(child("a"));
      clock.advance(60_000);
      expect(await supervisor.ended).toEqual({
        ok: false,
        reason:
          "a failed 3 times in 6.0 s, and at most 2 restarts in 10 s are allowed; " +
          "first cause: no process could be started (Error: too many open files)",
      });
      expect(spawner.calls()).toBe(3);
    });

    test("is not tried again when the run has ended", async () => {
      const spawner = failing(100);
      const { supervisor, clock } = await stage({ spawner });
      supervisor.start(child("a"));
      await supervisor.stop("enough");
      clock.advance(60_000);
      expect(spawner.calls()).toBe(1);
    });

    test("for a bug of ours, is not tried again", async () => {
      const { supervisor } = await stage({ spawner: failing(1, new TypeError("a bug")) });
      expect(() => supervisor.start(child("a"))).toThrow("a bug");
    });
  });

  test("refuses an actor that is not its child", async () => {
    const { supervisor, processes, transport } = await stage();
    supervisor.start(child("a"));
    const stranger = new FakeProcess(
      1,
      JSON.stringify({ ...processes[0]!.actorSettings, actor: "stranger" }),
      () => {},
    );
    const peer = await stranger.connect(transport, []);
    await settle();
    expect(peer.closed).toBe(true);
  });
});

test("a supervisor ends a run whose child never gets as far as working, though each start outlasts the window", async () => {
  const { supervisor, processes, events, clock } = await stage({ restartWindowMs: 1000 });
  supervisor.start(child("a"));
  for (let i = 0; i < 3; i++) {
    clock.advance(4000);
    processes[i]!.output(`{"level":"error","text":"no ${["model", "memory", "disk"][i]}"}`);
    processes[i]!.exit(1);
    await events.next("exited", "a", i + 1);
  }
  expect((await supervisor.ended).reason).toBe(
    "a failed to start 3 times in 8.0 s, and at most 2 restarts in a row are allowed; first cause: exit code 1 (no model); last cause: exit code 1 (no disk)",
  );
});

describe("RestartLimit", () => {
  test("allows five failures in any thirty seconds, and names the first of the six that are too many", () => {
    const limit = new RestartLimit(5, 30_000);
    expect(limit.failed(0, "forgotten by then", null)).toBeNull();
    for (const second of [10, 20, 25, 29, 31]) expect(limit.failed(second * 1000, `at ${second}`, null)).toBeNull();
    expect(limit.failed(32_000, "at 32", null)).toBe(
      "failed 6 times in 22.0 s, and at most 5 restarts in 30 s are allowed; first cause: at 10",
    );
  });

  test("names the last cause too, if it is of another kind than the first", () => {
    const limit = new RestartLimit(2, 30_000);
    limit.failed(0, "silent for 10401 ms", null);
    limit.failed(1000, "silent for 10001 ms", null);
    expect(limit.failed(2000, "exit code 1 (nothing answers there)", STARTING)).toBe(
      "failed 3 times in 2.0 s, and at most 2 restarts in 30 s are allowed; first cause: silent for 10401 ms; last cause: exit code 1 (nothing answers there)",
    );
  });

  test("never gives up a child that fails seldom", () => {
    const limit = new RestartLimit(1, 1000);
    for (let i = 0; i < 100; i++) expect(limit.failed(i * 1001, "rare", null)).toBeNull();
  });

  test.each([
    [STARTING, "failed to start"],
    ["update 12 of 100", 'failed at "update 12 of 100"'],
  ])("allows no more failures in a row in one place, however long the way there takes: %s", (place, told) => {
    const limit = new RestartLimit(2, 1000);
    for (const [i, other] of [place, place, "update 13 of 100", place, place].entries())
      expect(limit.failed(i * 9000, `failure ${i}`, other)).toBeNull();
    expect(limit.failed(45_000, "failure 5", place)).toBe(
      `${told} 3 times in 18.0 s, and at most 2 restarts in a row are allowed; first cause: failure 3`,
    );
  });
});
