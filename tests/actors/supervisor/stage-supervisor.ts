/** A supervisor with real processes, and its events to wait for. */
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { processSpawner, workerSpawner } from "../../../actors/supervisor/spawner.ts";
import type { ChildSpec, SupervisorEvent, SupervisorOptions } from "../../../actors/supervisor/supervision.ts";
import { Supervisor } from "../../../actors/supervisor/supervisor.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";

export type EventOf<K extends SupervisorEvent["kind"]> = Extract<SupervisorEvent, { kind: K }>;

export class Events {
  readonly all: SupervisorEvent[] = [];
  #waiting: (() => void)[] = [];

  add(event: SupervisorEvent): void {
    this.all.push(event);
    for (const check of this.#waiting.splice(0)) check();
  }

  /** The events of one kind and child, in order. */
  of<K extends SupervisorEvent["kind"]>(kind: K, child: string): EventOf<K>[] {
    return this.all.filter((event): event is EventOf<K> => event.kind === kind && event.child === child);
  }

  /** The `count`th event of a kind and child, now or later. */
  async next<K extends SupervisorEvent["kind"]>(kind: K, child: string, count = 1): Promise<EventOf<K>> {
    for (;;) {
      const event = this.of(kind, child)[count - 1];
      if (event !== undefined) return event;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

export async function realSupervisor(overrides: Partial<SupervisorOptions> = {}) {
  const events = new Events();
  const lines: string[] = [];
  const limits = { frameBytesMax: 1 << 20, queuedBytesMax: 1 << 22 };
  const token = "a-token-for-tests";
  const supervisor = new Supervisor({
    run: "test-run",
    token,
    transport: new SocketTransport({ clock: realClock, token, ...limits }),
    spawner: processSpawner,
    clock: realClock,
    heartbeatMs: 50,
    heartbeatDeadlineMs: 1000,
    progressDeadlineMs: 60_000,
    startDeadlineMs: 20_000,
    restartsMax: 3,
    restartWindowMs: 60_000,
    stopGraceMs: 5000,
    killGraceMs: 5000,
    limits: { logLevel: "info", ...limits },
    event: (event) => events.add(event),
    output: (_, line) => lines.push(line),
    ...overrides,
  });
  await supervisor.listen("ws://127.0.0.1:0");
  return { supervisor, events, lines };
}

/** A supervisor whose children are workers. */
export const workerSupervisor = (overrides: Partial<SupervisorOptions> = {}) =>
  realSupervisor({ spawner: workerSpawner, ...overrides });

export const testActor = (name: string, settings: unknown, spec: Partial<ChildSpec> = {}): ChildSpec => ({
  name,
  role: "sampler",
  entry: join(import.meta.dir, "test-actor.ts"),
  settings: () => settings,
  ...spec,
});
