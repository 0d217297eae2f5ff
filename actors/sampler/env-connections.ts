/** A sampler's connections to the env servers of the roster. */
import { type Clock, settlesIn } from "../clock.ts";
import { EpisodeError } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import type { Connection } from "../transport/reconnect.ts";
import { notTaken, refused } from "../transport/refusals.ts";
import type { Handler, Peer } from "../transport/transport.ts";

export interface EnvServerConnectionsOptions {
  /** Opens a connection that reconnects whenever it is lost. */
  readonly connect: (url: string, handler: Handler) => Connection;
  /** While no env server is connected, `choose` waits at most this long for a connection to open or close. */
  readonly waitMsMax: number;
  readonly clock: Clock;
}

export class EnvServerConnections {
  readonly #options: EnvServerConnectionsOptions;
  readonly #handler: Handler = {
    opened: () => this.#wake(),
    told(_, message) {
      throw notTaken("to a sampler from an env server", message.type);
    },
    asked: (_, message) => refused("to a sampler from an env server", message.type),
    closed: () => this.#wake(),
  };
  readonly #connections = new Map<string, Connection>();
  readonly #waiting = new Set<() => void>();
  #chosen = 0;

  constructor(options: EnvServerConnectionsOptions) {
    this.#options = options;
  }

  /** Connects to the env servers of the roster, and closes the connections to all other env servers. */
  update({ envServers }: Messages["roster"]): void {
    const urls = new Set(envServers.map(({ url }) => url));
    for (const [url, connection] of this.#connections) {
      if (urls.has(url)) continue;
      connection.close("no longer in the roster");
      this.#connections.delete(url);
    }
    for (const url of urls) this.#connections.getOrInsertComputed(url, () => this.#options.connect(url, this.#handler));
  }

  /** Chooses each connected env server in turn. Waits while none is connected. @throws {EpisodeError} if none connects in time */
  async choose(episode: string): Promise<Peer> {
    const { waitMsMax, clock } = this.#options;
    for (;;) {
      const peers = [...this.#connections.values()]
        .map((connection) => connection.peer())
        .filter((peer) => peer !== null);
      if (peers.length > 0) return peers[this.#chosen++ % peers.length]!;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.add(resolve);
      const isChanged = await settlesIn(clock, waitMsMax, promise);
      this.#waiting.delete(resolve);
      if (!isChanged) throw new EpisodeError(`no env server for ${episode} in ${waitMsMax} ms`, "closed");
    }
  }

  close(): void {
    for (const connection of this.#connections.values()) connection.close("leaving");
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }
}
