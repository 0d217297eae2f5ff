/** A connection to one actor of the roster: made when the roster first names it, and made again wherever it is named last. */

import { type Connection, connectForever, type ReconnectOptions } from "./transport/reconnect.ts";
import type { Peer } from "./transport/transport.ts";

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
