/**
 * Decodes many sequences at once, each with a key/value cache in a slot of its own. Tokens in, logits out: it knows no
 * tokenizer, no sampling and no episodes.
 *
 * - A token's logits depend bit for bit on its own sequence and on how that was split into appends and steps, and on nothing
 *   else: not on the batch, the slot or the other sequences. So a rollout is the same for any number of samplers.
 *   onnxruntime adds up a product in the same order for two or more rows, so no product has one row. On several threads it
 *   splits sums by the size of the product, so each thread computes rows of its own, in a lane (engine/lanes.ts). Models
 *   too large for lanes keep this promise on one thread only.
 * - A cache entry is computed once: a later turn only appends.
 * - Padding of an append writes to places past the capacity, which no token attends to.
 */
import * as tf from "@tensorflow/tfjs-core";
import {
  type CompiledFunction,
  type DeviceArray,
  type Engine,
  f32,
  i32,
  type Job,
  lanesFor,
  type Spec,
} from "../engine/engine.ts";
import { roundUp, sizeOf } from "../engine/graph.ts";
import { frozenShapes, type ModelConfig, parameterShapes } from "../policy/model-config.ts";
import { layFrozen, layParameters, parameterArrays } from "../policy/parameters.ts";
import { appendStates, type Caches, type Decoded, logits, stepStates } from "../policy/transformer.ts";

const ROWS_MIN = 4;
/** Fewest places of a cache that an append reads. */
const PLACES_READ_MIN = 64;

export interface DecoderOptions {
  /** Sequences open at once. */
  readonly slots: number;
  /** Most tokens of a sequence. */
  readonly capacity: number;
  /** Parameters of `baseOf(config)`, which adapters do not change; needed if the config has adapters. */
  readonly frozen?: Float32Array;
  /** Memory for the attention scores of one layer while appending; a batch of one sequence may exceed it. */
  readonly appendBytesMax?: number;
}

/** A function compiled for one shape, and its arrays: small inputs by name, caches, logits. */
interface DecodeFunction {
  readonly run: CompiledFunction;
  readonly feeds: Readonly<Record<string, DeviceArray>>;
  readonly caches: Readonly<Record<string, DeviceArray>>;
  readonly logits: DeviceArray;
}

export class Decoder {
  readonly #engine: Engine;
  readonly #lanes: number;
  readonly #config: ModelConfig;
  readonly #capacity: number;
  readonly #appendBytesMax: number;
  /** Places of a slot's cache: the capacity, and at least one more for the writes of padding. */
  readonly #places: number;
  readonly #caches: ReadonlyMap<string, Float32Array>;
  readonly #functions = new Map<string, Promise<DecodeFunction>>();
  /** By function, with the current parameters. Reused, because the compiled engine checks a job only at its first run. */
  readonly #jobs = new Map<DecodeFunction, Job>();
  readonly #lengths: Int32Array;
  readonly #frozen: Readonly<Record<string, DeviceArray>>;
  /** (slots, V) of the last step. */
  readonly #logits: Float32Array;
  #parameters: { readonly flat: Float32Array; readonly arrays: Readonly<Record<string, DeviceArray>> };

  constructor(
    engine: Engine,
    config: ModelConfig,
    parameters: Float32Array,
    { slots, capacity, frozen = new Float32Array(0), appendBytesMax = 2 ** 28 }: DecoderOptions,
  ) {
    this.#engine = engine;
    this.#lanes = lanesFor(engine, parameters, frozen);
    this.#config = config;
    this.#capacity = capacity;
    this.#appendBytesMax = appendBytesMax;
    this.#places = roundUp(capacity + 1, 8);
    this.#lengths = new Int32Array(stepRows(slots));
    this.#frozen = parameterArrays(engine, layFrozen(config, frozen));
    this.#logits = new Float32Array(this.#lengths.length * config.vocabulary);
    this.#parameters = this.#layOut(parameters);
    const names = Array.from({ length: config.layers }, (_, layer) => [`keys.${layer}`, `values.${layer}`]).flat();
    const size = this.#lengths.length * this.#slotSize();
    this.#caches = new Map(names.map((name) => [name, new Float32Array(size)]));
  }

  /** Call this while no step is computed. Open sequences keep the caches that the older parameters computed. */
  setParameters(parameters: Float32Array): void {
    this.#jobs.clear();
    this.#engine.release(this.#parameters.flat);
    this.#parameters = this.#layOut(parameters);
  }

  #layOut(flat: Float32Array) {
    return { flat, arrays: parameterArrays(this.#engine, layParameters(this.#config, flat)) };
  }

  /** Tokens in a slot's cache. */
  length(slot: number): number {
    return this.#lengths[slot]!;
  }

  /** Tokens that still fit into a slot's cache. */
  room(slot: number): number {
    return this.#capacity - this.#lengths[slot]!;
  }

  /** Empties a slot. */
  clear(slot: number): void {
    this.#lengths[slot] = 0;
  }

  /** False where caches lie in a device's memory, which the host would have to copy whole. */
  get canMove(): boolean {
    return this.#engine.runsReadHostMemory;
  }

  /** Exchanges the sequences of two slots. */
  swap(a: number, b: number): void {
    const used = Math.max(this.#lengths[a]!, this.#lengths[b]!) * this.#config.headWidth;
    const kept = new Float32Array(used);
    for (const cache of this.#caches.values()) {
      for (const [inA, inB] of this.#heads(a, b)) {
        kept.set(cache.subarray(inA, inA + used));
        cache.copyWithin(inA, inB, inB + used);
        cache.set(kept, inB);
      }
    }
    [this.#lengths[a], this.#lengths[b]] = [this.#lengths[b]!, this.#lengths[a]!];
  }

  /** Keeps the first `length` tokens of a sequence. @throws {RangeError} if it has fewer */
  truncate(slot: number, length: number): void {
    if (!Number.isInteger(length) || length < 0 || length > this.#lengths[slot]!)
      throw new RangeError(`slot ${slot}: cannot keep ${length} of ${this.#lengths[slot]} tokens`);
    this.#lengths[slot] = length;
  }

  /**
   * Append tokens to several sequences, each in a slot of its own.
   *
   * @returns (n, V) logits after the last token of each, in memory of their own.
   * @throws {RangeError} if a sequence gets no tokens or more than fit into the capacity, or two are in one slot; then nothing
   * changed.
   */
  async append(slots: readonly number[], tokens: readonly ArrayLike<number>[]): Promise<Float32Array> {
    this.#checkAppend(slots, tokens);
    const { vocabulary } = this.#config;
    const all = new Float32Array(slots.length * vocabulary);
    // Sequences run together if their numbers of new tokens, and of places to read, are equal after rounding up. The number of places
    // decides the order in which sums add up, so it depends on the sequence only.
    const { computed, copied } = this.#distinct(slots, tokens);
    const groups = Map.groupBy(computed, (index) => {
      const added = tokens[index]!.length;
      return `${appendLength(added)} ${this.#placesRead(this.#lengths[slots[index]!]! + added)}`;
    });
    for (const [key, group] of groups) {
      const [length, placesRead] = key.split(" ").map(Number) as [number, number];
      for (const members of this.#batches(length, placesRead, group)) {
        const compiled = await this.#appendFunction(powerOfTwo(members.length), length, placesRead);
        this.#feedAppend(compiled, length, members, slots, tokens);
        await this.#engine.runLanes([[this.#job(compiled)]]);
        const logits = compiled.logits.read() as Float32Array;
        for (const [row, index] of members.entries()) {
          all.set(logits.subarray(row * vocabulary, (row + 1) * vocabulary), index * vocabulary);
          this.#lengths[slots[index]!]! += tokens[index]!.length;
        }
      }
    }
    for (const { index, of } of copied) {
      this.#copy(slots[of]!, slots[index]!);
      all.copyWithin(index * vocabulary, of * vocabulary, (of + 1) * vocabulary);
    }
    return all;
  }

  /** Which prompts to compute, and which to copy from a slot that gets an equal first prompt, as members of a group do. */
  #distinct(slots: readonly number[], tokens: readonly ArrayLike<number>[]) {
    const first = new Map<string, number>();
    const [computed, copied]: [number[], { index: number; of: number }[]] = [[], []];
    for (const [index, slot] of slots.entries()) {
      const isFirst = this.canMove && this.#lengths[slot] === 0;
      const key = isFirst ? Array.from(tokens[index]!).join() : `${index}.`;
      const of = first.get(key);
      if (of === undefined) {
        first.set(key, index);
        computed.push(index);
      } else copied.push({ index, of });
    }
    return { computed, copied };
  }

  /** Copies the sequence of a slot into an empty one. */
  #copy(from: number, to: number): void {
    const used = this.#lengths[from]! * this.#config.headWidth;
    for (const cache of this.#caches.values()) {
      for (const [start, target] of this.#heads(from, to)) cache.copyWithin(target, start, start + used);
    }
    this.#lengths[to] = this.#lengths[from]!;
  }

  /** Where the heads of two slots begin in a cache. */
  #heads(a: number, b: number): [inA: number, inB: number][] {
    const size = this.#places * this.#config.headWidth;
    return Array.from({ length: this.#config.kvHeads }, (_, head) => [
      a * this.#slotSize() + head * size,
      b * this.#slotSize() + head * size,
    ]);
  }

  /** Places that an append reads for a sequence of this length: a power of two, so that few shapes are compiled. */
  #placesRead(length: number): number {
    return Math.min(this.#places, Math.max(PLACES_READ_MIN, powerOfTwo(length)));
  }

  /** Splits a group so that a batch's attention scores (new tokens by places that they read) fit into `appendBytesMax`. */
  #batches(length: number, placesRead: number, group: readonly number[]): number[][] {
    const bytes = 4 * this.#config.heads * length * placesRead;
    const most = 2 ** Math.floor(Math.log2(Math.max(1, this.#appendBytesMax / bytes)));
    return Array.from({ length: Math.ceil(group.length / most) }, (_, i) => group.slice(i * most, (i + 1) * most));
  }

  /**
   * Append one token to each of some sequences, all of them in slots 0 … rows - 1.
   *
   * @param tokens  (rows) the token for each slot; a negative one leaves the slot unchanged.
   * @returns (rows, V) logits, valid for rows that got a token; the next call overwrites them.
   * @throws {RangeError} if a sequence is full; then nothing changed.
   */
  async step(tokens: Int32Array): Promise<Float32Array> {
    if (tokens.length > this.#lengths.length)
      throw new RangeError(`${tokens.length} rows to step, but there are ${this.#lengths.length} slots`);
    const full = tokens.findIndex((token, slot) => token >= 0 && this.room(slot) === 0);
    if (full >= 0) throw new RangeError(`slot ${full}: no room for a token beyond the capacity of ${this.#capacity}`);
    let total = 0;
    const parts = await Promise.all(
      partsOf(stepRows(tokens.length), this.#lanes).map(async ({ from, rows }) => {
        const compiled = await this.#stepFunction(rows, from);
        const last = this.#lengths.slice(from, from + rows);
        // A slot without a token gets token 0, whose cache entry lies after the sequence; the next real token overwrites that entry.
        const fed = last.map((_, row) => Math.max(tokens[from + row] ?? 0, 0));
        compiled.feeds["tokens"]!.write(fed);
        compiled.feeds["last"]!.write(last);
        total = Math.max(total, Math.max(...last) + 1);
        return compiled;
      }),
    );
    for (const { feeds } of parts) feeds["total"]!.write(Int32Array.of(total));
    await this.#engine.runLanes(parts.map((compiled) => [this.#job(compiled)]));
    this.#engine.toHost(this.#logits);
    for (const [slot, token] of tokens.entries()) if (token >= 0) this.#lengths[slot]! += 1;
    return this.#logits.subarray(0, tokens.length * this.#config.vocabulary);
  }

  #checkAppend(slots: readonly number[], tokens: readonly ArrayLike<number>[]): void {
    if (new Set(slots).size !== slots.length || slots.length !== tokens.length)
      throw new RangeError(`cannot append ${tokens.length} pieces to slots ${slots}; each needs a slot of its own`);
    for (const [index, slot] of slots.entries()) {
      const added = tokens[index]!.length;
      if (added > 0 && added <= this.room(slot)) continue;
      throw new RangeError(`slot ${slot}: ${this.#lengths[slot]} + ${added} tokens, capacity ${this.#capacity}`);
    }
  }

  #feedAppend(
    { feeds }: DecodeFunction,
    length: number,
    members: readonly number[],
    slots: readonly number[],
    tokens: readonly ArrayLike<number>[],
  ): void {
    const of = (name: string) => new Int32Array(sizeOf(feeds[name]!.shape));
    const fed = { tokens: of("tokens"), positions: of("positions"), slots: of("slots"), picks: of("picks") };
    fed.positions.fill(this.#capacity);
    for (const [row, index] of members.entries()) {
      const [slot, added] = [slots[index]!, tokens[index]!];
      fed.slots[row] = slot;
      fed.picks[row] = row * length + added.length - 1;
      for (let i = 0; i < added.length; i++) {
        fed.tokens[row * length + i] = added[i]!;
        fed.positions[row * length + i] = this.#lengths[slot]! + i;
      }
    }
    for (const [name, values] of Object.entries(fed)) feeds[name]!.write(values);
  }

  #job(compiled: DecodeFunction): Job {
    const { run, feeds, caches, logits } = compiled;
    const job = this.#jobs.get(compiled) ?? {
      run,
      inputs: { ...this.#frozen, ...this.#parameters.arrays, ...caches, ...feeds },
      outputs: { ...caches, logits },
    };
    this.#jobs.set(compiled, job);
    return job;
  }

  #slotSize(): number {
    return this.#config.kvHeads * this.#places * this.#config.headWidth;
  }

  #appendFunction(rows: number, length: number, placesRead: number): Promise<DecodeFunction> {
    return this.#cached(`append ${rows} x ${length} of ${placesRead}`, async (name) => {
      const [config, capacity] = [this.#config, this.#places];
      const picks = Math.max(rows, ROWS_MIN);
      const feeds = { tokens: i32(rows, length), positions: i32(rows, length), slots: i32(rows), picks: i32(picks) };
      const cache = f32(this.#lengths.length * config.kvHeads * capacity, config.headWidth);
      const run = await this.#compile(name, feeds, cache, (x, caches) => {
        const { states, caches: next } = appendStates(config, x, x["tokens"]!, x["slots"]!, x["positions"]!, caches, {
          capacity,
          placesRead,
        });
        return { states: tf.gather(states, x["picks"]!), caches: next };
      });
      return this.#arrays(run, feeds, cache, 0, this.#engine.array(f32(picks, config.vocabulary)));
    });
  }

  /** For the slots `from` to `from + rows - 1`. */
  #stepFunction(rows: number, from: number): Promise<DecodeFunction> {
    const config = this.#config;
    const feeds = { tokens: i32(rows, 1), last: i32(rows), total: i32() };
    const cache = f32(rows, config.kvHeads, this.#places, config.headWidth);
    return this.#cached(`step ${rows} from ${from}`, async () => {
      const build = (x: Readonly<Record<string, tf.Tensor>>, caches: Caches) =>
        stepStates(config, x, x["tokens"]!, x["last"]!, x["total"]!, caches);
      const run =
        from === 0 ? await this.#compile(`step ${rows}`, feeds, cache, build) : (await this.#stepFunction(rows, 0)).run;
      const { vocabulary } = config;
      const logits = this.#logits.subarray(from * vocabulary, (from + rows) * vocabulary);
      return this.#arrays(run, feeds, cache, from, this.#engine.array(f32(rows, vocabulary), logits));
    });
  }

  #cached(name: string, make: (name: string) => Promise<DecodeFunction>): Promise<DecodeFunction> {
    const compiled = this.#functions.get(name) ?? make(name);
    this.#functions.set(name, compiled);
    return compiled;
  }

  /** @param cache  the shape in which the function sees each cache */
  #compile(
    name: string,
    feeds: Readonly<Record<string, Spec>>,
    cache: Spec,
    build: (x: Readonly<Record<string, tf.Tensor>>, caches: Caches) => Decoded,
  ): Promise<CompiledFunction> {
    const config = this.#config;
    const names = [...this.#caches.keys()];
    const parameters = [...frozenShapes(config), ...parameterShapes(config)].map(([key, shape]) => [
      key,
      f32(...shape),
    ]);
    const specs = {
      ...feeds,
      ...Object.fromEntries(parameters),
      ...Object.fromEntries(names.map((key) => [key, cache])),
    };
    const decode = (x: Readonly<Record<string, tf.Tensor>>) => {
      const { states, caches } = build(x, Object.fromEntries(names.map((key) => [key, x[key]!])));
      return { logits: logits(config, x, states), ...caches };
    };
    return this.#engine.compile(`decode: ${name}`, decode, specs, this.#lanes > 1);
  }

  /** @param from  first slot that the function sees. */
  #arrays(
    run: CompiledFunction,
    feeds: Readonly<Record<string, Spec>>,
    cache: Spec,
    from: number,
    logits: DeviceArray,
  ): DecodeFunction {
    const start = from * this.#slotSize();
    const size = sizeOf(cache.shape);
    const view = ([key, values]: [string, Float32Array]) =>
      [key, this.#engine.array(cache, values.subarray(start, start + size))] as const;
    return {
      run,
      feeds: Object.fromEntries(Object.entries(feeds).map(([key, spec]) => [key, this.#engine.array(spec)])),
      caches: Object.fromEntries([...this.#caches].map(view)),
      logits,
    };
  }
}

/** Splits the rows of a step among lanes, in multiples of 16: a lane with few rows would mostly wait for the others. */
function partsOf(rows: number, lanes: number): { from: number; rows: number }[] {
  const most = roundUp(Math.ceil(rows / lanes), 16);
  const parts: { from: number; rows: number }[] = [];
  for (let from = 0; from < rows; from += most) parts.push({ from, rows: Math.min(most, rows - from) });
  return parts;
}

const powerOfTwo = (value: number) => 2 ** Math.ceil(Math.log2(value));

// Sizes are rounded up so that few shapes are compiled. The cost of a step grows with its rows; that of an append is mostly fixed.
export const stepRows = (rows: number) => (rows <= 16 ? Math.max(powerOfTwo(rows), ROWS_MIN) : roundUp(rows, 16));
const appendLength = (tokens: number) => roundUp(tokens, tokens <= 32 ? 8 : tokens <= 128 ? 16 : 64);
