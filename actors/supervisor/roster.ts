/** Who is in a run and where: what the supervisor tells learner and samplers, and how they follow it. */
import type { RunConfig } from "../config/config.ts";
import type { Messages, Role } from "../protocol.ts";
import { type Connection, connectForever, type ReconnectOptions } from "../transport/reconnect.ts";
import type { Peer } from "../transport/transport.ts";

export type ActorRole = Exclude<Role, "supervisor">;

/** The actors of a run on its own machine, in the order in which they are needed; they leave in the reverse. */
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

/** Where the actors that have started listen; one that starts again replaces what it said before. */
export class Whereabouts {
  readonly #known = new Map<string, { readonly role: Role; readonly url: string }>();

  add(actor: string, role: Role, url: string): void {
    this.#known.set(actor, { role, url });
  }

  of(actor: string): { readonly role: Role; readonly url: string } | undefined {
    return this.#known.get(actor);
  }

  /** @param lent  env servers of other machines */
  roster(lent: readonly Messages["roster"]["envServers"][number][] = []): Messages["roster"] {
    const all = (role: Role) => [...this.#known].filter(([, entry]) => entry.role === role);
    return {
      type: "roster",
      learner: all("learner")[0]?.[1].url ?? null,
      metricsSink: all("metrics-sink")[0]?.[1].url ?? null,
      envServers: [...all("env-server").map(([actor, { url }]) => ({ actor, url })), ...lent],
    };
  }
}

/** A connection to one actor of the roster: made when the roster first names it, and made again wherever it is named last. */
export interface RosterConnection extends Connection {
  /** Where the roster says it is; null changes nothing. */
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
