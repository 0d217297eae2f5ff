/** Where the arrays of an engine lie: in the host's memory, or in a device's, beside the host's. */
import { type Pointer, ptr } from "bun:ffi";
import type { Engine } from "./engine.ts";
import type { TypedArray } from "./graph.ts";

export interface ArrayMemory extends Pick<Engine, "toDevice" | "toHost" | "release"> {
  /** Address of the array over these values. @throws {Error} in one line, if there is no room for it. */
  addressOf(values: TypedArray): Pointer;
}

/** Arrays are the host's memory itself. */
export const hostMemory: ArrayMemory = {
  addressOf(values) {
    // Asking for `buffer` makes small arrays move to memory of their own, once and for all; only then is the pointer final.
    if (values.buffer.byteLength === 0) throw new RangeError("a tensor needs at least one value");
    return ptr(values);
  },
  toDevice() {},
  toHost() {},
  release() {},
};

/** A device's memory. Each function blocks until it is done, and throws in one line if it cannot be. */
export interface DeviceMemory {
  allocate(bytes: number): Pointer;
  free(address: Pointer): void;
  /** To the device, from the host. */
  send(to: Pointer, from: Pointer, bytes: number): void;
  /** To the host, from the device. */
  fetch(to: Pointer, from: Pointer, bytes: number): void;
}

/**
 * A twin on a device of each buffer in the host's memory that arrays are made over, so that what a graph reads stays there from
 * run to run, and arrays over parts of one buffer share memory there as they do here.
 */
export class TwinMemory implements ArrayMemory {
  readonly #device: DeviceMemory;
  readonly #twins = new WeakMap<ArrayBufferLike, Pointer>();
  /** Twins whose host memory JavaScript forgot. */
  readonly #forgotten: FinalizationRegistry<Pointer>;

  constructor(device: DeviceMemory) {
    this.#device = device;
    this.#forgotten = new FinalizationRegistry((twin) => device.free(twin));
  }

  addressOf({ buffer, byteOffset }: TypedArray): Pointer {
    const twin = this.#twins.get(buffer) ?? this.#make(buffer);
    return (twin + byteOffset) as Pointer;
  }

  /** As a copy of the whole buffer. */
  #make(buffer: ArrayBufferLike): Pointer {
    const twin = this.#device.allocate(buffer.byteLength);
    this.#twins.set(buffer, twin);
    this.#forgotten.register(buffer, twin, buffer);
    this.#device.send(twin, ptr(new Uint8Array(buffer)), buffer.byteLength);
    return twin;
  }

  toDevice(values: TypedArray): void {
    this.#device.send(this.addressOf(values), ptr(values), values.byteLength);
  }

  toHost(values: TypedArray): void {
    this.#device.fetch(ptr(values), this.addressOf(values), values.byteLength);
  }

  /** Frees the twin of the whole buffer. */
  release({ buffer }: TypedArray): void {
    const twin = this.#twins.get(buffer);
    if (twin === undefined) return;
    this.#twins.delete(buffer);
    this.#forgotten.unregister(buffer);
    this.#device.free(twin);
  }
}
