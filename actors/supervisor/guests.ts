/**
 * The guests of a run: samplers and env servers on other machines that joined the run. The supervisor neither starts nor kills guests, but
 * removes a guest that is silent or stuck. This file knows no sockets.
 *
 * - When a guest leaves or the supervisor removes it, the gate cuts the guest's connections. So the learner reissues a lost sampler's tickets
 *   at once, and samplers open a lost env server's episodes at another env server.
 */
import type { Clock } from "../clock.ts";
import type { ActorView, Messages, Role, Tell } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import { refused } from "../transport/refusals.ts";
import type { Peer } from "../transport/transport.ts";
import { type HeartbeatLimits, stateOf, takeHeartbeat, type Watched, watchHeartbeats } from "./heartbeats.ts";
import type { GuestEvent } from "./supervision.ts";

export interface GuestsOptions extends HeartbeatLimits {
  readonly clock: Clock;
  /** The messages that each guest gets when it joins. */
  readonly firstMessages: () => readonly Tell[];
  readonly envServersChanged: () => void;
  readonly cut: (name: string, reason: string) => void;
  readonly event: (event: GuestEvent) => void;
}

interface Guest extends Watched {
  readonly name: string;
  readonly peer: Peer;
  readonly role: Role;
  /** The address that the guest reported; null: it has reported none. */
  readonly url: string | null;
}

/** Time between the `stop` message to a stuck guest and the cut of its connections, so that the message arrives. */
const STOP_MESSAGE_MS = 1000;

export class Guests {
  readonly #options: GuestsOptions;
  readonly #guests = new Map<string, Guest>();
  #allLeft = Promise.withResolvers<void>();
  readonly #stopWatch: () => void;

  constructor(options: GuestsOptions) {
    this.#options = options;
    this.#stopWatch = watchHeartbeats(
      options.clock,
      options,
      () => this.#guests.values(),
      ({ name, peer }, { kind, reason }) => {
        // A silent guest may join again. A stuck guest would be stuck again, so it gets a `stop` message before the gate cuts its connections.
        if (kind === "stuck") peer.tell({ type: "stop", reason });
        this.#remove(name, reason, kind === "stuck" ? STOP_MESSAGE_MS : 0);
      },
    );
  }

  get envServers(): Messages["roster"]["envServers"] {
    return [...this.#guests.values()].flatMap(({ name, role, url }) =>
      role === "env-server" && url !== null ? [{ actor: name, url }] : [],
    );
  }

  get views(): ActorView[] {
    const now = this.#options.clock.now();
    return [...this.#guests.values()].map(({ name, role, heardAtMs, heartbeat }) => ({
      name,
      role,
      guest: true,
      pid: null,
      restarts: 0,
      url: null,
      silentMs: now - heardAtMs,
      ...stateOf(heartbeat),
    }));
  }

  tell(message: Tell): void {
    for (const { peer } of this.#guests.values()) peer.tell(message);
  }

  /** Tells every guest to stop. Resolves when the last guest has left. */
  stop(reason: string): Promise<void> {
    this.#stopWatch();
    this.tell({ type: "stop", reason });
    if (this.#guests.size === 0) this.#allLeft.resolve();
    return this.#allLeft.promise;
  }

  /** A handler for guests' connections. It closes the connection of a guest with a role outside `roles`. */
  admitting(roles: readonly Role[]): HostHandler {
    return {
      joined: (peer, who) => {
        if (roles.includes(who.role)) this.#joined(peer, who);
        else peer.close(`its token is not for the role ${who.role}`);
      },
      told: (_, message, { actor }) => takeHeartbeat(this.#guests.get(actor), message, this.#options.clock),
      asked: (_, message) => refused("to the supervisor from an actor", message.type),
      left: (peer, { actor }, reason) => {
        if (this.#guests.get(actor)?.peer === peer) this.#remove(actor, reason);
      },
    };
  }

  #joined(peer: Peer, { actor: name, role, url }: Hello): void {
    const { clock, firstMessages, envServersChanged, event } = this.#options;
    const before = this.#guests.get(name);
    const isNew = before?.peer !== peer;
    if (isNew) before?.peer.close(`${name} connected again`);
    if (this.#guests.size === 0) this.#allLeft = Promise.withResolvers();
    const heartbeat = isNew ? null : (before?.heartbeat ?? null);
    this.#guests.set(name, { name, peer, role, url, heardAtMs: clock.now(), heartbeat });
    if (isNew) for (const message of firstMessages()) peer.tell(message);
    if (before === undefined) event({ kind: "joined", child: name, role });
    if (url !== null && url !== before?.url) envServersChanged();
  }

  #remove(name: string, reason: string, cutAfterMs = 0): void {
    const { envServersChanged, cut, event, clock } = this.#options;
    const { peer, url, role } = this.#guests.get(name)!;
    this.#guests.delete(name);
    event({ kind: "left", child: name, role, reason });
    const end = () => {
      cut(name, reason);
      peer.close(reason);
    };
    if (cutAfterMs === 0) end();
    else clock.after(cutAfterMs, end);
    if (url !== null) envServersChanged();
    if (this.#guests.size === 0) this.#allLeft.resolve();
  }
}
