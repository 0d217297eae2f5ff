/**
 * Lanes: threads that run whole graphs in parallel, for independent work such as micro-batches. If threads
 * share the work of each node, they wake once per node. A lane wakes once for all its calls, and its data stays in its core's cache. (On
 * 2 threads the step of bench/step.bench.ts takes 226 ms if they share nodes, and 129 ms at best in lanes; docs/log/2026-11.md.)
 *
 * - A lane that is free makes the next call of the list with the most calls left. So a lane that other work slows down makes fewer calls.
 * - The caller's thread is the first lane and waits for the other lanes, so the memory of a call must live until `run` returns.
 * - The other lanes are Bun workers of this process, so addresses are valid in all lanes.
 */
import { CFunction, type Pointer } from "bun:ffi";
import { subnormalsAsZero } from "./subnormals.ts";

/** Arguments of a call of onnxruntime's `Run`: session, options or 0, input names, inputs, their count, output names, outputs, their count. */
export type RunArguments = readonly [bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint];
const RUN_ARGUMENT_COUNT = 8;

/** Places in `LaneMemory.signals`. */
export const ROUND = 0;
export const DONE = 1;

export interface LaneMemory {
  /** The requested round, the finished round. */
  readonly signals: Int32Array;
  readonly work: WorkMemory;
  /** Address of onnxruntime's `Run`. */
  readonly run: number;
}

/** Maximum number of calls, and of lists, in a round. A round is one start of the lanes. */
const CALLS_MAX = 1024;

/** Int32 words of a list: 1 while a lane makes a call of the list; the index of the list's next call among all calls; the index after its last call. */
const [BUSY, NEXT, END] = [0, 1, 2];
const LIST_WORDS = 3;

/** The calls of a round, in memory that all lanes share. */
interface WorkMemory {
  /** The number of lists, then the words of each list. */
  readonly lists: Int32Array;
  /** The arguments of each call. */
  readonly calls: BigUint64Array;
  /** The error status of each list, or 0. */
  readonly errors: BigUint64Array;
}

const workMemory = (): WorkMemory => ({
  lists: new Int32Array(new SharedArrayBuffer(4 * (1 + CALLS_MAX * LIST_WORDS))),
  calls: new BigUint64Array(new SharedArrayBuffer(8 * CALLS_MAX * RUN_ARGUMENT_COUNT)),
  errors: new BigUint64Array(new SharedArrayBuffer(8 * CALLS_MAX)),
});

/** A round's lists of calls. Any lane makes the next call of a list, but only one lane at a time. */
class Work {
  readonly #lists: Int32Array;
  readonly #calls: BigUint64Array;
  readonly #errors: BigUint64Array;

  constructor({ lists, calls, errors }: WorkMemory) {
    this.#lists = lists;
    this.#calls = calls;
    this.#errors = errors;
  }

  /** Call this while no lane works. */
  set(lists: readonly (readonly RunArguments[])[]): void {
    let end = 0;
    for (const [list, calls] of lists.entries()) {
      const next = end;
      for (const call of calls) this.#calls.set(call, RUN_ARGUMENT_COUNT * end++);
      this.#lists.set([0, next, end], 1 + list * LIST_WORDS);
      this.#errors[list] = 0n;
    }
    Atomics.store(this.#lists, 0, lists.length);
  }

  /** Makes calls until no list is left: every list is done, or another lane works on it. A list ends at its first error. */
  run(call: (words: RunArguments) => Pointer | null): void {
    for (let list = this.#take(); list !== null; list = this.#take()) {
      const word = 1 + list * LIST_WORDS;
      const next = this.#lists[word + NEXT]!;
      const place = RUN_ARGUMENT_COUNT * next;
      const status = call(this.#calls.subarray(place, place + RUN_ARGUMENT_COUNT) as unknown as RunArguments);
      if (status !== null) this.#errors[list] = BigInt(status);
      Atomics.store(this.#lists, word + NEXT, status === null ? next + 1 : this.#lists[word + END]!);
      Atomics.store(this.#lists, word + BUSY, 0);
    }
  }

  /** Takes the free list with the most calls left. @returns null if no free list has a call left */
  #take(): number | null {
    for (;;) {
      const [list, left] = this.#longest();
      if (left === 0) return null;
      const word = 1 + list * LIST_WORDS;
      if (Atomics.compareExchange(this.#lists, word + BUSY, 0, 1) !== 0) continue;
      if (this.#left(word) > 0) return list;
      // Meanwhile another lane made the last call of this list.
      Atomics.store(this.#lists, word + BUSY, 0);
    }
  }

  #longest(): [list: number, left: number] {
    let [longest, most] = [0, 0];
    const count = Atomics.load(this.#lists, 0);
    for (let list = 0; list < count; list++) {
      const word = 1 + list * LIST_WORDS;
      const left = Atomics.load(this.#lists, word + BUSY) === 0 ? this.#left(word) : 0;
      if (left > most) [longest, most] = [list, left];
    }
    return [longest, most];
  }

  #left(word: number): number {
    return this.#lists[word + END]! - Atomics.load(this.#lists, word + NEXT);
  }

  /** The error status of each list that failed. */
  get errors(): Pointer[] {
    const statuses = this.#errors.subarray(0, Atomics.load(this.#lists, 0));
    return [...statuses].filter((status) => status !== 0n).map((status) => Number(status) as Pointer);
  }
}

/** @param run  address of onnxruntime's `Run`. @returns a function that does a lane's part of a round */
export function roundMaker(run: number, memory: WorkMemory): () => void {
  const args = ["ptr", "ptr", "ptr", "ptr", "u64", "ptr", "u64", "ptr"] as const;
  const runCall = CFunction({ ptr: run as Pointer, args, returns: "ptr" });
  const address = (word: bigint) => (Number(word) || null) as Pointer;
  const flushed = subnormalsAsZero();
  const work = new Work(memory);
  return () =>
    flushed(() => {
      work.run(([session, options, inputNames, inputs, inputCount, outputNames, outputs, outputCount]) =>
        runCall(
          address(session),
          address(options),
          address(inputNames),
          address(inputs),
          inputCount,
          address(outputNames),
          outputCount,
          address(outputs),
        ),
      );
    });
}

class Lane {
  readonly #signals = new Int32Array(new SharedArrayBuffer(8));
  #round = 0;

  constructor(run: number, work: WorkMemory) {
    const worker = new Worker(new URL("./lane-worker.ts", import.meta.url).href);
    worker.postMessage({ signals: this.#signals, work, run } satisfies LaneMemory);
    worker.unref();
  }

  start(): void {
    this.#round = (this.#round + 1) & 0x3fffffff;
    Atomics.store(this.#signals, ROUND, this.#round);
    Atomics.notify(this.#signals, ROUND);
  }

  /** Blocks until the lane finds no more calls. */
  wait(): void {
    for (let done = Atomics.load(this.#signals, DONE); done !== this.#round; ) {
      Atomics.wait(this.#signals, DONE, done);
      done = Atomics.load(this.#signals, DONE);
    }
  }
}

export class Lanes {
  readonly #runAddress: number;
  readonly #memory = workMemory();
  readonly #work = new Work(this.#memory);
  readonly #workHere: () => void;
  readonly #others: Lane[] = [];

  /** @param runAddress  of onnxruntime's `Run`. */
  constructor(runAddress: number) {
    this.#runAddress = runAddress;
    this.#workHere = roundMaker(runAddress, this.#memory);
  }

  /**
   * Runs the lists in parallel on at most `lanesMax` lanes, each list in order and up to its first error. Blocks until all are done.
   *
   * @returns the error statuses, for the caller to release; empty without errors.
   */
  run(lists: readonly (readonly RunArguments[])[], lanesMax: number): Pointer[] {
    if (lists.length > CALLS_MAX) {
      const errors = this.run(lists.slice(0, CALLS_MAX), lanesMax);
      return errors.length > 0 ? errors : this.run(lists.slice(CALLS_MAX), lanesMax);
    }
    const others = Math.min(lanesMax, lists.length) - 1;
    while (this.#others.length < others) this.#others.push(new Lane(this.#runAddress, this.#memory));
    const longest = Math.max(...lists.map((list) => list.length));
    const atOnce = Math.floor(CALLS_MAX / lists.length);
    for (let from = 0; from < longest; from += atOnce) {
      this.#work.set(lists.map((list) => list.slice(from, from + atOnce)));
      const woken = this.#others.slice(0, others);
      for (const lane of woken) lane.start();
      this.#workHere();
      for (const lane of woken) lane.wait();
      const { errors } = this.#work;
      if (errors.length > 0) return errors;
    }
    return [];
  }
}
