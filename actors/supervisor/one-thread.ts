/**
 * A run on one thread: the actors of cluster.ts without processes or threads, and without sockets between them, for tests and debuggers.
 *
 * - Messages are packed, copied and checked as between processes.
 * - The first error of any actor ends the run; no actor is restarted.
 * - The run ends once, and only when every actor has left. The one that finished by itself leaves first, the others in the reverse
 *   order of their start. No timer of the actors' clock outlives the run.
 */

import { randomBytes } from "node:crypto";
import type { ActorKind, Running } from "../actor.ts";
import { type Clock, realClock } from "../clock.ts";
import { envServer } from "../env-server/start.ts";
import { describeError, stackOf } from "../errors.ts";
import { learner } from "../learner/start.ts";
import { type Log, makeLog } from "../log.ts";
import { cpuSeconds, Meter } from "../metrics/meter.ts";
import { metricsSink } from "../metrics-sink/start.ts";
import { type ActorView, STARTING } from "../protocol.ts";
import { sampler } from "../sampler/start.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";
import { TRANSPORT_LIMITS } from "../transport/transport.ts";
import { ACTORS_EVERY_MS, type Cluster, type ClusterOptions } from "./cluster.ts";
import { type ActorRole, AddressBook, actorsOf } from "./roster.ts";
import type { RunEnd } from "./supervision.ts";

const KINDS: Readonly<Record<ActorRole, ActorKind>> = {
  "metrics-sink": metricsSink,
  "env-server": envServer,
  learner,
  sampler,
};

/** Begins to start the actors. `ended` also reports a failed start. */
export async function startOneThread(options: ClusterOptions): Promise<Cluster> {
  const run = new OneThread(options);
  void run.start();
  return run;
}

interface Actor {
  readonly name: string;
  readonly kind: ActorKind;
  readonly log: Log;
  /** null until it has started. */
  running: Running | null;
  readonly meter: Meter;
  lastMessage: string;
}

class OneThread implements Cluster {
  readonly #options: ClusterOptions;
  readonly #network = new MemoryNetwork();
  readonly #token: string;
  readonly #time = stoppableClock(realClock);
  readonly #actors: Actor[] = [];
  readonly #addresses = new AddressBook();
  readonly #started = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<RunEnd>();
  #ending = false;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.#token = options.config.transport.token ?? randomBytes(24).toString("base64url");
  }

  get ended(): Promise<RunEnd> {
    return this.#ended.promise;
  }

  children(): readonly ActorView[] {
    return this.#actors.map(({ name, kind, running, lastMessage, meter }) => ({
      name,
      role: kind.role,
      lastMessage,
      url: running?.url ?? null,
      doing: running?.doing() ?? STARTING,
      guest: false,
      pid: process.pid,
      restarts: 0,
      silentMs: 0,
      rssBytes: process.memoryUsage.rss(),
      load: meter.read(),
      weights: running?.weights?.() ?? null,
    }));
  }

  save(): void {
    for (const { kind, running } of this.#actors) if (kind === learner) running?.told({ type: "save" });
  }

  stop(reason: string): Promise<RunEnd> {
    return this.#end({ ok: true, reason }, null);
  }

  /** Starts the actors in order. */
  async start(): Promise<void> {
    for (const { role, name } of actorsOf(this.#options.config)) {
      if (!this.#ending) await this.#startActor(KINDS[role], name);
    }
    this.#started.resolve();
    this.#tellActors();
  }

  async #startActor(kind: ActorKind, name: string): Promise<void> {
    const { run, folder, config, event, output } = this.#options;
    const level = config.supervisor.logLevel;
    const write = (line: string) => output(name, line.trimEnd());
    const log = makeLog({ actor: name, level, secrets: [this.#token], write, date: () => new Date() });
    const meter = new Meter(this.#time.clock);
    meter.depth("process/cpu_seconds", cpuSeconds);
    const actor: Actor = { name, kind, log, running: null, meter, lastMessage: "" };
    this.#actors.push(actor);
    event({ kind: "started", child: name, pid: process.pid });
    try {
      actor.running = await kind.start(config, {
        actor: name,
        run,
        folder,
        token: this.#token,
        clock: this.#time.clock,
        log,
        meter,
        transport: this.#transport(actor),
        listen: `memory:${name}`,
        host: "one-thread",
        guest: null,
        uniform: Math.random,
        finish: () => void this.#end({ ok: true, reason: `${name} finished` }, actor),
        fail: (error) => this.#failed(actor, error),
      });
    } catch (error) {
      this.#failed(actor, error);
      return;
    }
    const { url } = actor.running;
    if (url !== null) {
      this.#addresses.add(name, kind.role, url);
      event({ kind: "ready", child: name, url });
    }
    for (const { kind, running } of this.#actors) {
      if (kind.role === "learner" || kind.role === "sampler") running?.told(this.#addresses.roster());
    }
  }

  #transport(actor: Actor) {
    return new MemoryTransport(this.#network, {
      clock: this.#time.clock,
      token: this.#token,
      ...TRANSPORT_LIMITS,
      report: ({ kind, detail, ...where }) => actor.log.warning(`peer.${kind}`, detail, where),
      received(type) {
        actor.lastMessage = type;
      },
      passed: (direction, bytes) => actor.meter.count(`speed/${direction}_bytes_per_second`, bytes),
    });
  }

  #tellActors(): void {
    const sink = this.#actors.find(({ kind }) => kind === metricsSink);
    sink?.running?.told({ type: "actors", actors: [...this.children()] });
    this.#time.clock.after(ACTORS_EVERY_MS, () => this.#tellActors());
  }

  #failed({ name, log }: Actor, error: unknown): void {
    log.error("crash", describeError(error), { stack: stackOf(error) });
    void this.#end({ ok: false, reason: `${name} failed (${describeError(error)})` }, null);
  }

  #end(end: RunEnd, first: Actor | null): Promise<RunEnd> {
    if (!this.#ending) {
      this.#ending = true;
      this.#leave(end, first).then(this.#ended.resolve, this.#ended.reject);
    }
    return this.ended;
  }

  async #leave(end: RunEnd, first: Actor | null): Promise<RunEnd> {
    await this.#started.promise;
    const others = this.#actors.filter((actor) => actor !== first).reverse();
    let result = end;
    for (const actor of first === null ? others : [first, ...others]) {
      const error = await this.#stopActor(actor, end.reason);
      // The first failure is the reason of the run's end.
      if (error !== null && result.ok) result = { ok: false, reason: `${actor.name} could not leave: ${error}` };
    }
    this.#time.stop();
    return result;
  }

  /** @returns what went wrong, or null */
  async #stopActor({ name, running }: Actor, reason: string): Promise<string | null> {
    let problem: string | null = null;
    try {
      await running?.stop(reason);
    } catch (error) {
      problem = describeError(error);
    }
    const code = problem === null && running !== null ? 0 : 1;
    this.#options.event({ kind: "exited", child: name, pid: process.pid, asked: true, code, signal: null });
    return problem;
  }
}

/** A clock whose timers end with the run: an actor may leave timers behind, which in a cluster end with its process. */
function stoppableClock({ now, after }: Clock): { readonly clock: Clock; stop(): void } {
  const cancels = new Set<() => void>();
  let stopped = false;
  return {
    clock: {
      now,
      after(delayMs, run) {
        if (stopped) return () => {};
        const cancelTimer = after(delayMs, () => {
          cancels.delete(cancel);
          run();
        });
        const cancel = () => {
          cancels.delete(cancel);
          cancelTimer();
        };
        cancels.add(cancel);
        return cancel;
      },
    },
    stop() {
      stopped = true;
      for (const cancel of cancels) cancel();
    },
  };
}
