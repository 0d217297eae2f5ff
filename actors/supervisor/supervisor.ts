/**
 * Starts the actors of a run as child processes, watches them, replaces those that die or fall silent, and stops them.
 * Knows nothing of what they do.
 *
 * - A child is replaced when it exits unasked, when nothing is heard of it for `heartbeatDeadlineMs`, or when what it computes
 *   gives no result for `progressDeadlineMs`.
 * - A child whose error a restart would not cure, or that fails more than `restartsMax` times in `restartWindowMs`, or in a row
 *   before it works at all, is given up;
 *   if it is critical, the run ends and says the first cause.
 * - The run ends once, and only when no child is left: asked by `stop`, then by SIGTERM, then by SIGKILL. Children leave in
 *   the reverse order of roles, so that whoever is told something is there until the last teller has left.
 * - Children know of our own end by the end of their standard input, so none outlives us.
 */

import { RUN_ERROR_CODE } from "../errors.ts";
import type { ActorSettings } from "../process/settings.ts";
import { type ActorView, type Messages, ProtocolError, type Role, STARTING, type Tell } from "../protocol.ts";
import { type Hello, welcoming } from "../transport/handshake.ts";
import type { Listener, Peer } from "../transport/transport.ts";
import { RestartLimit } from "./restart-limit.ts";
import type { ChildProcess, Exit } from "./spawner.ts";
import { type ChildSpec, givenUpFor, type RunEnd, type SupervisorOptions } from "./supervision.ts";

type Heartbeat = Pick<Messages["heartbeat"], "doing" | "lastMessage" | "rssBytes" | "load" | "weights" | "workingMs">;

interface Child {
  readonly spec: ChildSpec;
  readonly limit: RestartLimit;
  process: ChildProcess | null;
  peer: Peer | null;
  url: string | null;
  restarts: number;
  /** When it was started or last heard. */
  heardAtMs: number;
  /** null until the first heartbeat. */
  heartbeat: Heartbeat | null;
  /** Why we killed it, if we did. */
  killedFor: string | null;
  /** Its last line of level error, which says more than an exit code. */
  lastError: string | null;
}

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #children = new Map<string, Child>();
  readonly #ended = Promise.withResolvers<RunEnd>();
  #listener: Listener | null = null;
  #stopping = false;
  /** How the child that the run is for failed while it was leaving. */
  #leftBadly: string | null = null;
  #watchedAtMs = 0;
  #cancelWatch = () => {};

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /** When every child is gone. */
  get ended(): Promise<RunEnd> {
    return this.#ended.promise;
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
      doing: heartbeat?.doing ?? STARTING,
      lastMessage: heartbeat?.lastMessage ?? "",
      rssBytes: heartbeat?.rssBytes ?? 0,
      load: heartbeat?.load ?? {},
      weights: heartbeat?.weights ?? null,
    }));
  }

  /** Be there for children. Before the first `start`. */
  async listen(address: string): Promise<void> {
    const handler = welcoming(this.#options.run, {
      joined: (peer, who) => this.#joined(peer, who),
      told: (_, message, who) => this.#told(message, who),
      asked: (_, { type }) => ({ type: "failed", code: "protocol", detail: `a supervisor is not asked ${type}` }),
      left: (peer, who) => this.#left(peer, who),
    });
    this.#listener = await this.#options.transport.listen(address, handler);
    this.#watchedAtMs = this.#options.clock.now();
    this.#watchLater();
  }

  /** @throws {Error} if the name is taken, or the run is ending. */
  start(spec: ChildSpec): void {
    if (this.#children.has(spec.name)) throw new Error(`cannot start ${spec.name}: there is one already`);
    if (this.#stopping) throw new Error(`cannot start ${spec.name}: the run is ending`);
    const { clock, restartsMax, restartWindowMs } = this.#options;
    const child: Child = {
      spec,
      limit: new RestartLimit(restartsMax, restartWindowMs),
      process: null,
      peer: null,
      url: null,
      restarts: 0,
      heardAtMs: clock.now(),
      heartbeat: null,
      killedFor: null,
      lastError: null,
    };
    this.#children.set(spec.name, child);
    const pid = this.#spawn(child);
    this.#options.event({ kind: "started", child: spec.name, pid });
  }

  /** Tell every connected child of a role. */
  tell(role: Role, message: Tell): void {
    for (const { spec, peer } of this.#children.values()) if (spec.role === role) peer?.tell(message);
  }

  /** End the run well. Resolves when every child is gone; asking again changes nothing. */
  stop(reason: string): Promise<RunEnd> {
    return this.#end({ ok: true, reason });
  }

  #spawn(child: Child): number {
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
    Object.assign(child, { url: null, heardAtMs: clock.now(), heartbeat: null, killedFor: null, lastError: null });
    const process = spawner.spawn(entry, JSON.stringify(actorSettings), (line) => {
      if (line.includes('"level":"error"')) child.lastError = line;
      this.#options.output(name, line);
    });
    child.process = process;
    void process.exited.then((exit) => this.#exited(child, process.pid, exit));
    return process.pid;
  }

  #exited(child: Child, pid: number, exit: Exit): void {
    const { name, critical, restart, endsRun } = child.spec;
    child.process = null;
    child.peer?.close(`${name} exited`);
    child.peer = null;
    this.#options.event({ kind: "exited", child: name, pid, asked: this.#stopping, ...exit });
    if (this.#stopping) {
      if (endsRun && exit.code !== 0) this.#leftBadly ??= `${name} could not leave: ${causeOf(child, exit)}`;
      return;
    }
    if (endsRun && exit.code === 0) {
      void this.#end({ ok: true, reason: `${name} finished` });
      return;
    }
    const cause = causeOf(child, exit);
    const worked = child.heartbeat !== null && child.heartbeat.doing !== STARTING;
    const hopeless =
      restart && exit.code !== RUN_ERROR_CODE ? child.limit.failed(this.#options.clock.now(), cause, worked) : cause;
    if (hopeless === null) {
      child.restarts++;
      this.#options.event({ kind: "restarted", child: name, pid: this.#spawn(child), restarts: child.restarts });
      return;
    }
    this.#options.event({ kind: "gaveUp", child: name, reason: hopeless });
    if (critical) void this.#end({ ok: false, reason: `${name} ${hopeless}` });
  }

  #joined(peer: Peer, { actor, url }: Hello): void {
    const child = this.#children.get(actor);
    if (child === undefined || child.process === null) {
      peer.close(`this run has no child named ${actor}`);
      return;
    }
    if (child.peer !== null && child.peer !== peer) child.peer.close(`${actor} connected again`);
    const isNew = child.peer !== peer;
    child.peer = peer;
    child.heardAtMs = this.#options.clock.now();
    if (isNew) for (const message of this.#options.greet?.(actor) ?? []) peer.tell(message);
    if (url === null || url === child.url) return;
    child.url = url;
    this.#options.event({ kind: "ready", child: actor, url });
    this.#options.onReady?.(actor, url);
  }

  #told(message: Tell, { actor }: Hello): void {
    if (message.type !== "heartbeat") throw new ProtocolError(`a supervisor is not told ${message.type}`);
    const child = this.#children.get(actor);
    if (child === undefined) return;
    child.heardAtMs = this.#options.clock.now();
    child.heartbeat = message;
  }

  #left(peer: Peer, { actor }: Hello): void {
    const child = this.#children.get(actor);
    if (child?.peer === peer) child.peer = null;
  }

  #watchLater(): void {
    this.#cancelWatch = this.#options.clock.after(this.#options.heartbeatMs, () => {
      this.#watch();
      this.#watchLater();
    });
  }

  #watch(): void {
    const { clock, heartbeatMs, heartbeatDeadlineMs, progressDeadlineMs, startDeadlineMs } = this.#options;
    const now = clock.now();
    // If we slept, heartbeats wait to be read: nobody was silent but us.
    const slept = now - this.#watchedAtMs > heartbeatMs + heartbeatDeadlineMs / 2;
    this.#watchedAtMs = now;
    for (const child of this.#children.values()) {
      if (slept) child.heardAtMs = now;
      const silentMs = now - child.heardAtMs;
      const limitMs = child.heartbeat === null ? startDeadlineMs : heartbeatDeadlineMs;
      if (child.process === null || child.killedFor !== null) continue;
      const { doing = STARTING, lastMessage = "", workingMs = 0 } = child.heartbeat ?? {};
      if (workingMs > progressDeadlineMs) {
        this.#options.event({ kind: "stuck", child: child.spec.name, workingMs, doing, lastMessage });
        child.killedFor = givenUpFor("stuck", workingMs, progressDeadlineMs, child.heartbeat);
        child.process.kill("SIGKILL");
        continue;
      }
      if (silentMs <= limitMs) continue;
      this.#options.event({ kind: "wedged", child: child.spec.name, silentMs, doing, lastMessage });
      child.killedFor = givenUpFor("silent", silentMs, limitMs, child.heartbeat);
      child.process.kill("SIGKILL");
    }
  }

  #end(end: RunEnd): Promise<RunEnd> {
    if (!this.#stopping) {
      this.#stopping = true;
      this.#leave(end.reason).then(() => {
        const bad = end.ok ? this.#leftBadly : null;
        this.#ended.resolve(bad === null ? end : { ok: false, reason: bad });
      }, this.#ended.reject);
    }
    return this.ended;
  }

  async #leave(reason: string): Promise<void> {
    for (const group of groupsByRole([...this.#children.values()]).reverse()) {
      await Promise.all(group.map((child) => this.#stopChild(child, reason)));
    }
    this.#cancelWatch();
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

/** "exit code 1 (TypeError: x is not a function)". */
function causeOf({ killedFor, lastError }: Child, { code, signal }: Exit): string {
  if (killedFor !== null) return killedFor;
  const how = signal === null ? `exit code ${code}` : `killed by ${signal}`;
  return lastError === null ? how : `${how} (${textOf(lastError)})`;
}

/** The text of a log line; the whole line if it is not one. */
function textOf(line: string): string {
  try {
    return String(JSON.parse(line).text);
  } catch {
    return line;
  }
}

/** Neighbours of one role leave together. */
function groupsByRole(children: readonly Child[]): Child[][] {
  const groups: Child[][] = [];
  for (const child of children) {
    const last = groups.at(-1);
    if (last?.[0]?.spec.role === child.spec.role) last.push(child);
    else groups.push([child]);
  }
  return groups;
}
