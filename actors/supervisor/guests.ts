/**
 * Samplers and env servers that other machines lend to a run, as its supervisor sees them: they come, say that they live, and
 * go. It can neither start nor kill them; one that falls silent is given up. Knows no sockets.
 *
 * - What a guest had been given is issued again when it goes, however it goes: that is the learner's and the samplers' work, as
 *   for any actor. Here its connections are cut, so that they learn of it at once.
 */
import type { Clock } from "../clock.ts";
import { type ActorView, type Messages, ProtocolError, type Role, STARTING, type Tell } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import type { Peer } from "../transport/transport.ts";
import { givenUpFor } from "./supervision.ts";

export interface GuestsOptions {
  readonly clock: Clock;
  readonly heartbeatMs: number;
  /** Silence after which a guest is given up. */
  readonly heartbeatDeadlineMs: number;
  /** Time without a result of its computation after which it is, too. */
  readonly progressDeadlineMs: number;
  /** What a guest is told when it comes. */
  readonly greet: () => readonly Tell[];
  /** An env server has come or gone. */
  readonly changed: () => void;
  /** End all connections of a guest. */
  readonly cut: (name: string, reason: string) => void;
  readonly event: (event: GuestEvent) => void;
}

export type GuestEvent =
  | { readonly kind: "joined"; readonly child: string; readonly role: Role }
  | { readonly kind: "left"; readonly child: string; readonly role: Role; readonly reason: string };

interface Guest {
  readonly peer: Peer;
  readonly role: Role;
  /** Where it listens, as it says; null: not yet, or not at all. */
  readonly url: string | null;
  heardAtMs: number;
  heartbeat: Messages["heartbeat"] | null;
}

export class Guests {
  readonly #options: GuestsOptions;
  readonly #guests = new Map<string, Guest>();
  #gone = Promise.withResolvers<void>();
  #cancelWatch: () => void;

  constructor(options: GuestsOptions) {
    this.#options = options;
    this.#cancelWatch = this.#watchLater();
  }

  /** Those that can be asked for episodes. */
  get envServers(): { readonly actor: string; readonly url: string }[] {
    return [...this.#guests].flatMap(([actor, { role, url }]) =>
      role === "env-server" && url !== null ? [{ actor, url }] : [],
    );
  }

  get views(): ActorView[] {
    const now = this.#options.clock.now();
    return [...this.#guests].map(([name, { role, heardAtMs, heartbeat }]) => ({
      name,
      role,
      guest: true,
      pid: null,
      restarts: 0,
      url: null,
      silentMs: now - heardAtMs,
      doing: heartbeat?.doing ?? STARTING,
      lastMessage: heartbeat?.lastMessage ?? "",
      rssBytes: heartbeat?.rssBytes ?? 0,
      load: heartbeat?.load ?? {},
      weights: heartbeat?.weights ?? null,
    }));
  }

  tell(message: Tell): void {
    for (const { peer } of this.#guests.values()) peer.tell(message);
  }

  /** The run is over. Resolves when the last of them has gone. */
  stop(reason: string): Promise<void> {
    this.#cancelWatch();
    this.tell({ type: "stop", reason });
    if (this.#guests.size === 0) this.#gone.resolve();
    return this.#gone.promise;
  }

  /** For connections through which only these may come. */
  admitting(roles: readonly Role[]): HostHandler {
    return {
      joined: (peer, who) => {
        if (roles.includes(who.role)) this.#joined(peer, who);
        else peer.close(`its token is not for the role ${who.role}`);
      },
      told: (_, message, who) => this.#told(message, who),
      asked: (_, { type }) => ({ type: "failed", code: "protocol", detail: `a supervisor is not asked ${type}` }),
      left: (peer, who, reason) => this.#left(peer, who, reason),
    };
  }

  #joined(peer: Peer, { actor, role, url }: Hello): void {
    const before = this.#guests.get(actor);
    const isNew = before?.peer !== peer;
    if (isNew) before?.peer.close(`${actor} connected again`);
    const heardAtMs = this.#options.clock.now();
    // The last one may have gone before.
    if (this.#guests.size === 0) this.#gone = Promise.withResolvers();
    this.#guests.set(actor, { peer, role, url, heardAtMs, heartbeat: isNew ? null : (before?.heartbeat ?? null) });
    if (isNew) for (const message of this.#options.greet()) peer.tell(message);
    if (before === undefined) this.#options.event({ kind: "joined", child: actor, role });
    if (url !== null && url !== before?.url) this.#options.changed();
  }

  #told(message: Tell, { actor }: Hello): void {
    if (message.type !== "heartbeat") throw new ProtocolError(`a supervisor is not told ${message.type}`);
    const guest = this.#guests.get(actor);
    if (guest === undefined) return;
    guest.heardAtMs = this.#options.clock.now();
    guest.heartbeat = message;
  }

  #left(peer: Peer, { actor }: Hello, reason: string): void {
    if (this.#guests.get(actor)?.peer === peer) this.#lose(actor, reason);
  }

  #lose(name: string, reason: string): void {
    const { url, role } = this.#guests.get(name)!;
    this.#guests.delete(name);
    this.#options.event({ kind: "left", child: name, role, reason });
    this.#options.cut(name, reason);
    if (url !== null) this.#options.changed();
    if (this.#guests.size === 0) this.#gone.resolve();
  }

  #watchLater(): () => void {
    const { clock, heartbeatMs, heartbeatDeadlineMs, progressDeadlineMs } = this.#options;
    const watchedAtMs = clock.now();
    return clock.after(heartbeatMs, () => {
      const now = clock.now();
      // If we slept, signs of life wait to be read: nobody was silent but us.
      const slept = now - watchedAtMs > heartbeatMs + heartbeatDeadlineMs / 2;
      for (const [name, guest] of this.#guests) {
        if (slept) guest.heardAtMs = now;
        const silentMs = now - guest.heardAtMs;
        const workingMs = guest.heartbeat?.workingMs ?? 0;
        if (silentMs <= heartbeatDeadlineMs && workingMs <= progressDeadlineMs) continue;
        const silent = silentMs > heartbeatDeadlineMs;
        const reason = silent
          ? givenUpFor("silent", silentMs, heartbeatDeadlineMs, guest.heartbeat)
          : givenUpFor("stuck", workingMs, progressDeadlineMs, guest.heartbeat);
        // Whoever was silent may come back; who hangs would hang again.
        if (!silent) guest.peer.tell({ type: "stop", reason });
        this.#lose(name, reason);
        guest.peer.close(reason);
      }
      this.#cancelWatch = this.#watchLater();
    });
  }
}
