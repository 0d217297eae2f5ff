/** The actors of a run, and their addresses. The supervisor collects the addresses. Actors need them to connect to each other. */
import type { RunConfig } from "../config/config.ts";
import type { Messages, Role } from "../protocol.ts";
import { type Connection, connectForever, type ReconnectOptions } from "../transport/reconnect.ts";
import type { Peer } from "../transport/transport.ts";

export type ActorRole = Exclude<Role, "supervisor">;

/** The actors that the run starts on its own machine, in the order of their start. They leave in the reverse order. */
export function actorsOf({ envServer, sampler }: RunConfig): readonly { role: ActorRole; name: string }[] {
  const several = (role: ActorRole, count: number) =>
    Array.from({ length: count }, (_, i) => ({ role, name: `${role}-${i}` }));
  return [
    { role: "metrics-sink", name: "metrics-sink" },
    ...several("env-server", envServer.count),
    { role: "learner", name: "learner" },
    ...several("sampler", sampler.count),
  ];
}

/** Roles and addresses of actors, by name. */
export type Addresses = Map<string, { readonly role: Role; readonly url: string }>;

/** @param guests  env servers of other machines */
export function rosterOf(addresses: Addresses, guests: Messages["roster"]["envServers"] = []): Messages["roster"] {
  const all = (role: Role) =>
    [...addresses].flatMap(([actor, entry]) => (entry.role === role ? [{ actor, url: entry.url }] : []));
  return {
    type: "roster",
    learner: all("learner")[0]?.url ?? null,
    metricsSink: all("metrics-sink")[0]?.url ?? null,
    envServers: [...all("env-server"), ...guests],
  };
}

/** A connection to one actor of the roster. It opens when the roster first names the actor, and reconnects at the newest address. */
export interface RosterConnection extends Connection {
  /** Sets the address that the roster names; null changes nothing. */
  at(url: string | null): void;
}

export function connectByRoster(options: Omit<ReconnectOptions, "address">): RosterConnection {
  let address = "";
  let connection: Connection | null = null;
  return {
    at(url) {
      if (url === null) return;
      address = url;
      connection ??= connectForever({ ...options, address: () => address });
    },
    peer: (): Peer | null => connection?.peer() ?? null,
    close: (reason) => connection?.close(reason),
  };
}
