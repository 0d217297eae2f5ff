/** Makes a transport of any kind. */
import { MemoryNetwork, MemoryTransport } from "./memory.ts";
import { RoutedTransport } from "./routed.ts";
import { SocketTransport } from "./socket.ts";
import type { SocketOptions } from "./socket-wire.ts";
import type { Transport, TransportOptions } from "./transport.ts";
import { type WorkerOptions, WorkerTransport } from "./worker.ts";

export interface MemoryOptions extends TransportOptions {
  /** Transports of one network reach each other; left out: a new network. */
  readonly network?: MemoryNetwork;
}

/** The options of each kind of transport. */
export interface OptionsOf {
  memory: MemoryOptions;
  worker: WorkerOptions;
  socket: SocketOptions;
  /** Socket or NATS, by the scheme of each address. */
  routed: SocketOptions;
}
export type TransportKind = keyof OptionsOf;

const make: { [K in TransportKind]: (options: OptionsOf[K]) => Transport } = {
  memory: ({ network = new MemoryNetwork(), ...options }) => new MemoryTransport(network, options),
  worker: (options) => new WorkerTransport(options),
  socket: (options) => new SocketTransport(options),
  routed: (options) => new RoutedTransport(options),
};

/** @throws {RangeError} if the limits contradict each other. */
export function createTransport<K extends TransportKind>(kind: K, options: OptionsOf[K]): Transport {
  const { frameBytesMax, queuedBytesMax } = options;
  if (!Number.isSafeInteger(frameBytesMax) || frameBytesMax < 1) {
    throw new RangeError(`frameBytesMax must be a positive integer, got ${frameBytesMax}`);
  }
  if (queuedBytesMax < frameBytesMax) {
    throw new RangeError(
      `queuedBytesMax (${queuedBytesMax}) must be at least frameBytesMax (${frameBytesMax}), ` +
        "or the largest frame could never be sent",
    );
  }
  return make[kind](options);
}
