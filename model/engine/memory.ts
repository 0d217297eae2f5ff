/** Memory of an engine's arrays: the host's memory, or a copy of it on a device. */
import { type Pointer, ptr } from "bun:ffi";
import type { Engine } from "./engine.ts";
import type { TypedArray } from "./graph.ts";

export interface ArrayMemory extends Pick<Engine, "toDevice" | "toHost" | "release"> {
  /** Address of these values in the engine's memory. @throws {Error} if there are no values, or no memory for them. */
  addressOf(values: TypedArray): Pointer;
  /** Copies these values from the engine's memory. @returns a function that writes the copy back */
  keep(values: TypedArray): () => void;
}

/** Arrays are the host's memory. */
export const hostMemory: ArrayMemory = {
  addressOf(values) {
    // Keep this check: reading `buffer` moves a small array to its final memory, and a pointer taken before that becomes invalid.
    if (values.buffer.byteLength === 0) throw new RangeError("a tensor needs at least one value");
    return ptr(values);
  },
  keep(values) {
    const kept = values.slice();
    return () => values.set(kept as never);
  },
  toDevice() {},
  toHost() {},
  release() {},
};

/** A device's memory. Each function blocks until it is done. @throws {Error} if the device fails */
export interface DeviceMemory {
  allocate(bytes: number): Pointer;
  free(address: Pointer): void;
  /** Copies from the host to the device. */
  send(to: Pointer, from: Pointer, bytes: number): void;
  /** Copies from the device to the host. */
  fetch(to: Pointer, from: Pointer, bytes: number): void;
}

/**
 * Keeps one copy on the device, the twin, of each host buffer that holds an array. So inputs stay on the device between runs. Arrays that
 * are parts of one buffer on the host are also parts of one buffer on the device.
 */
export class TwinMemory implements ArrayMemory {
  readonly #device: DeviceMemory;
  readonly #twins = new WeakMap<ArrayBufferLike, Pointer>();
  /** Frees the twin when the host's buffer is garbage-collected. */
  readonly #collected: FinalizationRegistry<Pointer>;

  constructor(device: DeviceMemory) {
    this.#device = device;
    this.#collected = new FinalizationRegistry((twin) => device.free(twin));
  }

  addressOf({ buffer, byteOffset }: TypedArray): Pointer {
    const twin = this.#twins.get(buffer) ?? this.#make(buffer);
    return (twin + byteOffset) as Pointer;
  }

  #make(buffer: ArrayBufferLike): Pointer {
    const twin = this.#device.allocate(buffer.byteLength);
    this.#twins.set(buffer, twin);
    this.#collected.register(buffer, twin, buffer);
    this.#device.send(twin, ptr(new Uint8Array(buffer)), buffer.byteLength);
    return twin;
  }

  keep(values: TypedArray): () => void {
    const [twin, kept] = [this.addressOf(values), new Uint8Array(values.byteLength)];
    this.#device.fetch(ptr(kept), twin, kept.byteLength);
    return () => this.#device.send(twin, ptr(kept), kept.byteLength);
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
    this.#collected.unregister(buffer);
    this.#device.free(twin);
  }
}
