/**
 * Starts the actors of a run as children (processes or Bun workers), watches them, replaces children that fail, and stops them.
 * This file does not know what the children do.
 *
 * - A child fails when it exits before the run stops, unless it has `endsRun` and exits with code 0. It also fails when it is silent
 *   for `heartbeatDeadlineMs` (`startDeadlineMs` before its first heartbeat), or computes without a result for `progressDeadlineMs`. The
 *   supervisor starts a failed child again. If the system cannot start a process (no memory, too many open files), this start counts as a
 *   failure after `SPAWN_RETRY_MS`.
 * - The supervisor gives up a child after a `RunError`, after more than `restartsMax` failures (see `RestartLimit`), or after its first
 *   failure if children share the supervisor's thread. Then the run ends and names the first cause.
 * - The run ends once, and only when no child is left. A connected child gets the message `stop`, then SIGTERM, then SIGKILL. Children
 *   leave by role, in the reverse order of their start. So an actor that receives results leaves after the actors that send them.
 * - The standard input of a child process ends when the supervisor ends; then the child exits. So no child outlives the supervisor.
 */
import { describeError, RUN_ERROR_CODE } from "../errors.ts";
import type { ActorSettings } from "../process/settings.ts";
import { type ActorView, type Role, STARTING, type Tell } from "../protocol.ts";
import { type Hello, welcoming } from "../transport/handshake.ts";
import { refused } from "../transport/refusals.ts";
import type { Listener, Peer } from "../transport/transport.ts";
import { type HeartbeatFault, stateOf, takeHeartbeat, type Watched, watchHeartbeats } from "./heartbeats.ts";
import type { Exit, SpawnedChild } from "./spawner.ts";
import type { ChildSpec, RunEnd, SupervisorOptions } from "./supervision.ts";

/**
 * Time between a failed start of a process and the next attempt. With the default of 5 restarts the last attempt comes after 15 s. Bun closes
 * incomplete HTTP requests after 12 s. So if such requests use all file descriptors, the last attempt finds free descriptors.
 */
const SPAWN_RETRY_MS = 3000;

interface Child extends Watched {
  readonly spec: ChildSpec;
  readonly limit: RestartLimit;
  process: SpawnedChild | null;
  peer: Peer | null;
  url: string | null;
  restarts: number;
  /** Why the supervisor killed the child; null if the supervisor has not killed it. */
  killedFor: string | null;
  /** The child's last log line of level error, which may name the cause of its exit. */
  lastError: string | null;
}

/** What a child has when its process starts. */
const FRESH = { url: null, heartbeat: null, killedFor: null, lastError: null };

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #children = new Map<string, Child>();
  readonly #ended = Promise.withResolvers<RunEnd>();
  /** Resolves when every child is gone. */
  readonly ended: Promise<RunEnd> = this.#ended.promise;
  #listener: Listener | null = null;
  #stopping = false;
  /** Why a child with `endsRun` failed while the run was stopping; null if none failed. */
  #stopFailure: string | null = null;
  #stopWatch = () => {};

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  get children(): readonly ActorView[] {
    const now = this.#options.clock.now();
    return [...this.#children.values()].map(({ spec, process, restarts, url, heardAtMs, heartbeat }) => ({
      name: spec.name,
      role: spec.role,
      guest: false,
      pid: process?.pid ?? null,
      restarts,
      url,
      silentMs: now - heardAtMs,
      ...stateOf(heartbeat),
    }));
  }

  /** Listens for children. Call it before the first `start`. */
  async listen(address: string): Promise<void> {
    const { run, clock, transport } = this.#options;
    const handler = welcoming(run, {
      joined: (peer, who) => this.#joined(peer, who),
      told: (_, message, { actor }) => takeHeartbeat(this.#children.get(actor), message, clock),
      asked: (_, message) => refused("to the supervisor from an actor", message.type),
      left: (peer, { actor }) => {
        const child = this.#children.get(actor);
        if (child?.peer === peer) child.peer = null;
      },
    });
    this.#listener = await transport.listen(address, handler);
    const running = () => this.#children.values().filter((child) => child.process !== null && child.killedFor === null);
    this.#stopWatch = watchHeartbeats(clock, this.#options, running, (child, fault) => this.#kill(child, fault));
  }

  /** Starts a child. @throws {Error} if the run is ending, or the supervisor does not listen yet */
  start(spec: ChildSpec): void {
    if (this.#stopping) throw new Error(`cannot start ${spec.name}: the run is ending`);
    const { clock, restartsMax, restartWindowMs } = this.#options;
    const child: Child = {
      spec,
      limit: new RestartLimit(restartsMax, restartWindowMs),
      process: null,
      peer: null,
      restarts: 0,
      heardAtMs: clock.now(),
      ...FRESH,
    };
    this.#children.set(spec.name, child);
    this.#spawn(child);
  }

  tell(role: Role, message: Tell): void {
    for (const { spec, peer } of this.#children.values()) if (spec.role === role) peer?.tell(message);
  }

  /** Ends the run, with success unless a child with `endsRun` fails to leave. Resolves when no child is left; a second call changes nothing. */
  stop(reason: string): Promise<RunEnd> {
    return this.#end({ ok: true, reason });
  }

  #spawn(child: Child): void {
    const { run, token, heartbeatMs, limits, spawner, clock } = this.#options;
    const { name, entry, settings } = child.spec;
    if (this.#listener === null) throw new Error(`cannot start ${name}: the supervisor does not listen yet`);
    const supervisor = this.#listener.address;
    const actorSettings: ActorSettings = {
      run,
      actor: name,
      supervisor,
      token,
      heartbeatMs,
      ...limits,
      settings: settings(),
    };
    Object.assign(child, FRESH, { heardAtMs: clock.now() });
    let process: SpawnedChild;
    try {
      process = spawner.spawn(entry, JSON.stringify(actorSettings), (line) => {
        if (line.includes('"level":"error"')) child.lastError = line;
        this.#options.output(name, line);
      });
    } catch (error) {
      if (!isSystemError(error)) throw error;
      this.#notSpawned(child, describeError(error));
      return;
    }
    child.process = process;
    const { pid } = process;
    void process.exited.then((exit) => this.#exited(child, pid, exit));
    const { restarts } = child;
    this.#options.event(
      restarts === 0 ? { kind: "started", child: name, pid } : { kind: "restarted", child: name, pid, restarts },
    );
  }

  #notSpawned(child: Child, reason: string): void {
    this.#options.event({ kind: "startFailed", child: child.spec.name, reason });
    this.#options.clock.after(SPAWN_RETRY_MS, () => {
      if (!this.#stopping) this.#failed(child, `no process could be started (${reason})`, STARTING, true);
    });
  }

  #exited(child: Child, pid: number, exit: Exit): void {
    const { name, endsRun } = child.spec;
    child.process = null;
    child.peer?.close(`${name} exited`);
    child.peer = null;
    this.#options.event({ kind: "exited", child: name, pid, asked: this.#stopping, ...exit });
    if (this.#stopping) {
      // Ctrl-C reaches every process. A child that a signal ends before its first heartbeat has nothing to save, so this is no failure.
      const hadBegun = child.heartbeat !== null || exit.code !== null;
      if (endsRun && exit.code !== 0 && hadBegun)
        this.#stopFailure ??= `${name} could not leave: ${causeOf(child, exit)}`;
      return;
    }
    if (endsRun && exit.code === 0) {
      void this.#end({ ok: true, reason: `${name} finished` });
      return;
    }
    const cause = causeOf(child, exit);
    const { doing } = stateOf(child.heartbeat);
    const mayRestart = exit.code !== RUN_ERROR_CODE && !this.#options.spawner.sharesThread;
    this.#failed(child, cause, endsRun || doing === STARTING ? doing : null, mayRestart);
  }

  /** Starts a failed child again, or gives it up and ends the run. */
  #failed(child: Child, cause: string, place: string | null, mayRestart: boolean): void {
    const { name } = child.spec;
    const giveUpReason = mayRestart ? child.limit.failed(this.#options.clock.now(), cause, place) : cause;
    if (giveUpReason === null) {
      child.restarts++;
      this.#spawn(child);
      return;
    }
    this.#options.event({ kind: "gaveUp", child: name, reason: giveUpReason });
    void this.#end({ ok: false, reason: `${name} ${giveUpReason}` });
  }

  #joined(peer: Peer, { actor, url }: Hello): void {
    const child = this.#children.get(actor);
    if (child === undefined || child.process === null) {
      peer.close(`this run has no running child named ${actor}`);
      return;
    }
    if (child.peer !== null && child.peer !== peer) child.peer.close(`${actor} connected again`);
    const isNew = child.peer !== peer;
    child.peer = peer;
    child.heardAtMs = this.#options.clock.now();
    if (isNew) for (const message of this.#options.firstMessages?.() ?? []) peer.tell(message);
    if (url === null || url === child.url) return;
    child.url = url;
    this.#options.event({ kind: "ready", child: actor, url });
  }

  #kill(child: Child, { kind, ms, reason }: HeartbeatFault): void {
    const { event } = this.#options;
    const { doing, lastMessage } = stateOf(child.heartbeat);
    const { name } = child.spec;
    if (kind === "silent") event({ kind, child: name, silentMs: ms, doing, lastMessage });
    else event({ kind, child: name, workingMs: ms, doing, lastMessage });
    child.killedFor = reason;
    child.process?.kill("SIGKILL");
  }

  #end(end: RunEnd): Promise<RunEnd> {
    if (!this.#stopping) {
      this.#stopping = true;
      this.#leave(end.reason).then(() => {
        const bad = end.ok ? this.#stopFailure : null;
        this.#ended.resolve(bad === null ? end : { ok: false, reason: bad });
      }, this.#ended.reject);
    }
    return this.ended;
  }

  async #leave(reason: string): Promise<void> {
    // Roles leave in the reverse order of their start. The children of one role leave together.
    const byRole = Map.groupBy(this.#children.values(), ({ spec }) => spec.role);
    for (const group of [...byRole.values()].reverse()) {
      await Promise.all(group.map((child) => this.#stopChild(child, reason)));
    }
    this.#stopWatch();
    await this.#listener?.close();
  }

  async #stopChild({ process, peer }: Child, reason: string): Promise<void> {
    if (process === null) return;
    const { clock, stopGraceMs, killGraceMs } = this.#options;
    const terminate = () => {
      process.kill("SIGTERM");
      cancel = clock.after(killGraceMs, () => process.kill("SIGKILL"));
    };
    let cancel = () => {};
    if (peer === null) {
      terminate();
    } else {
      peer.tell({ type: "stop", reason });
      cancel = clock.after(stopGraceMs, terminate);
    }
    await process.exited;
    cancel();
  }
}

/** True if the operating system reported the error; such an error is no bug. */
const isSystemError = (error: unknown): boolean =>
  error instanceof Error && "errno" in error && typeof error.errno === "number";

/** For example "exit code 1 (TypeError: x is not a function)". */
function causeOf({ killedFor, lastError }: Child, { code, signal }: Exit): string {
  if (killedFor !== null) return killedFor;
  const how = signal === null ? `exit code ${code}` : `killed by ${signal}`;
  return lastError === null ? how : `${how} (${textOf(lastError)})`;
}

/** The text in a log line; the whole line if the line is not JSON. */
function textOf(line: string): string {
  try {
    return String(JSON.parse(line).text);
  } catch {
    return line;
  }
}

interface ChildFailure {
  readonly atMs: number;
  readonly cause: string;
}

/**
 * Decides whether one child may restart. As in Erlang/OTP, a child may restart at most `restartsMax` times in a window of time. A child may
 * need longer than the window to reach the place where it fails. So the limit also applies to failures in a row at one place: at the start,
 * or, for a child with `endsRun`, at one piece of work.
 */
export class RestartLimit {
  readonly #restartsMax: number;
  readonly #windowMs: number;
  #failures: ChildFailure[] = [];
  /** The latest failures in a row that happened at one place. */
  #failuresThere: ChildFailure[] = [];
  #place: string | null = null;

  constructor(restartsMax: number, windowMs: number) {
    this.#restartsMax = restartsMax;
    this.#windowMs = windowMs;
  }

  /**
   * Counts a failure.
   *
   * @param place  what the child did when it failed, such as "update 12 of 100"; null: no known place, so the failure starts a new row
   * @returns null if the child may restart, else why not, with the first cause, and with the last cause if it differs in more than numbers
   */
  failed(nowMs: number, cause: string, place: string | null): string | null {
    const failure = { atMs: nowMs, cause };
    this.#failures = [...this.#failures.filter(({ atMs }) => nowMs - atMs <= this.#windowMs), failure];
    const again = place !== null && place === this.#place;
    this.#failuresThere = again ? [...this.#failuresThere, failure] : [failure];
    this.#place = place;
    const window = `in ${this.#windowMs / 1000} s`;
    const there = place === STARTING ? "failed to start" : `failed at "${place}"`;
    return this.#excess(this.#failures, "failed", window) ?? this.#excess(this.#failuresThere, there, "in a row");
  }

  #excess(failures: readonly ChildFailure[], what: string, when: string): string | null {
    if (failures.length <= this.#restartsMax) return null;
    const [first, last] = [failures[0]!, failures.at(-1)!];
    const seconds = ((last.atMs - first.atMs) / 1000).toFixed(1);
    // The causes may differ. If a broker is lost, an actor is silent at first; then its replacements report that they cannot reach the broker.
    const other = kindOf(first.cause) === kindOf(last.cause) ? "" : `; last cause: ${last.cause}`;
    return (
      `${what} ${failures.length} times in ${seconds} s, and at most ${this.#restartsMax} restarts ${when} are allowed; ` +
      `first cause: ${first.cause}${other}`
    );
  }
}

/** The cause without its numbers, to compare causes. */
const kindOf = (cause: string) => cause.replaceAll(/\d+/g, "");
