/**
 * Lanes: threads that run whole graphs in parallel, for independent work such as micro-batches. Threads that share each node
 * wake once per node; a lane wakes once for all its calls and keeps its data in its own cache. (On 2 threads the step of
 * bench/step.bench.ts takes 226 ms with shared nodes, 129 ms at best in lanes; docs/log/2026-11.md.)
 *
 * - The caller's thread is the first lane and waits for the others, so the memory of a call must live until `run` returns.
 * - The other lanes are Bun workers of this process, so addresses are valid in all lanes.
 */
import { CFunction, type Pointer } from "bun:ffi";
import { subnormalsAsZero } from "./subnormals.ts";

/** Arguments of a call of onnxruntime's `Run`: session, options or 0, input names, inputs, their count, output names, outputs, their count. */
export type RunArguments = readonly [bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint];
export const RUN_ARGUMENT_COUNT = 8;

/** Most calls of a round; more take several rounds. */
const CALLS_MAX = 256;

/** Places in `signals`. */
export const ROUND = 0;
export const DONE = 1;

export interface LaneMemory {
  /** Int32: the requested round, the finished round. */
  readonly signals: SharedArrayBuffer;
  /** Uint64: the number of calls, then the calls. After a round, the first word is its error status, or 0. */
  readonly calls: SharedArrayBuffer;
  /** Address of onnxruntime's `Run`. */
  readonly run: number;
}

/**
 * @param run  address of onnxruntime's `Run`.
 * @returns a function that makes calls in order on this thread, up to the first that fails, and returns its error status or null.
 */
export function runner(run: number): (calls: Iterable<RunArguments>) => Pointer | null {
  const args = ["ptr", "ptr", "ptr", "ptr", "u64", "ptr", "u64", "ptr"] as const;
  const runCall = CFunction({ ptr: run as Pointer, args, returns: "ptr" });
  const address = (word: bigint) => (Number(word) || null) as Pointer;
  const flushed = subnormalsAsZero();
  return (calls) =>
    flushed(() => {
      for (const [session, options, inputNames, inputs, inputCount, outputNames, outputs, outputCount] of calls) {
        const status: Pointer | null = runCall(
          address(session),
          address(options),
          address(inputNames),
          address(inputs),
          inputCount,
          address(outputNames),
          outputCount,
          address(outputs),
        );
        if (status !== null) return status;
      }
      return null;
    });
}

class Lane {
  readonly #signals = new Int32Array(new SharedArrayBuffer(8));
  readonly #calls = new BigUint64Array(new SharedArrayBuffer(8 * (1 + CALLS_MAX * RUN_ARGUMENT_COUNT)));
  #round = 0;

  constructor(run: number) {
    const worker = new Worker(new URL("./lane-worker.ts", import.meta.url).href);
    const memory = { signals: this.#signals.buffer, calls: this.#calls.buffer, run };
    worker.postMessage(memory satisfies Record<keyof LaneMemory, unknown>);
    worker.unref();
  }

  start(calls: readonly RunArguments[]): void {
    this.#calls[0] = BigInt(calls.length);
    calls.forEach((call, i) => {
      this.#calls.set(call, 1 + i * RUN_ARGUMENT_COUNT);
    });
    this.#round = (this.#round + 1) & 0x3fffffff;
    Atomics.store(this.#signals, ROUND, this.#round);
    Atomics.notify(this.#signals, ROUND);
  }

  /** Blocks until the round is done. @returns the first error status, or null. */
  wait(): Pointer | null {
    for (let done = Atomics.load(this.#signals, DONE); done !== this.#round; ) {
      Atomics.wait(this.#signals, DONE, done);
      done = Atomics.load(this.#signals, DONE);
    }
    return (Number(this.#calls[0]) || null) as Pointer | null;
  }
}

export class Lanes {
  readonly #runAddress: number;
  readonly #runHere: ReturnType<typeof runner>;
  readonly #others: Lane[] = [];

  /** @param runAddress  of onnxruntime's `Run`. */
  constructor(runAddress: number) {
    this.#runAddress = runAddress;
    this.#runHere = runner(runAddress);
  }

  /**
   * Runs the lists in parallel, each in order and up to its first error. Blocks until all are done.
   *
   * @returns the error statuses, for the caller to release; empty without errors.
   */
  run(lists: readonly (readonly RunArguments[])[]): Pointer[] {
    const [own = [], ...rest] = lists;
    while (this.#others.length < rest.length) this.#others.push(new Lane(this.#runAddress));
    const failed: Pointer[] = [];
    const longest = Math.max(...lists.map((list) => list.length));
    for (let from = 0; from < longest && failed.length === 0; from += CALLS_MAX) {
      const part = (list: readonly RunArguments[]) => list.slice(from, from + CALLS_MAX);
      rest.forEach((list, i) => {
        this.#others[i]!.start(part(list));
      });
      const statuses = [this.#runHere(part(own)), ...rest.map((_, i) => this.#others[i]!.wait())];
      failed.push(...statuses.filter((status) => status !== null));
    }
    return failed;
  }
}
