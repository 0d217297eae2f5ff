/**
 * Decodes many sequences at once, each with a key/value cache in a slot of its own. The decoder takes tokens and gives logits. It knows no
 * tokenizer, no sampling and no episodes.
 *
 * - Bit for bit, a token's logits depend only on its own sequence and on how this sequence was split into appends and steps. They
 *   do not depend on the batch, the slot or the other sequences. So a rollout is the same for any number of samplers.
 *   onnxruntime adds up a product in the same order for two or more rows, so no product has one row. On several threads
 *   onnxruntime splits sums by the size of the product, so each thread computes rows of its own, in a lane (engine/lanes.ts).
 *   For a model that is too large for lanes, this guarantee holds on one thread only.
 * - The decoder computes a cache entry once: a later turn only appends.
 * - Padding of an append writes to places after the end of the sequence. A later token overwrites a place before any token attends to it.
 */
import {
  type CompiledFunction,
  type DeviceArray,
  type Engine,
  f32,
  i32,
  type Job,
  lanesFor,
  type SlotReaders,
  type Spec,
  type TensorFunction,
} from "../engine/engine.ts";
import { roundUp, sizeOf } from "../engine/graph.ts";
import { preferHugePages } from "../engine/huge-pages.ts";
import { frozenShapes, type ModelConfig, parameterShapes } from "../policy/model-config.ts";
import { layFrozen, layParameters, parameterArrays } from "../policy/parameters.ts";
import { type CacheLayout, decodeStates, logits } from "../policy/transformer.ts";
import {
  APPEND_LIMITS,
  APPEND_ON_GPU_LIMITS,
  appendLength,
  appendStep,
  batchesOf,
  firstSlots,
  type Piece,
  partsOf,
  ROWS_MIN,
  roundsOf,
  slotsOfStep,
  stepRows,
} from "./batches.ts";

/** A cache's capacity is a multiple of this number of tokens. An engine may interleave the keys of a block of this many tokens. */
const TOKENS_STEP = 16;
/**
 * If all caches together have at most this many floats, they are in huge pages, which take memory for the whole capacity. Otherwise caches
 * take memory only as sequences grow.
 */
const HUGE_PAGES_FLOATS_MAX = 2 ** 26;

export interface DecoderOptions {
  /** Maximum number of sequences that are open at once. */
  readonly slots: number;
  /** Maximum number of tokens of a sequence. */
  readonly capacity: number;
  /** Parameters of `baseOf(config)`, which adapters do not change; needed if the config has adapters. */
  readonly frozen?: Float32Array;
  /**
   * Keep the caches in 16-bit floats if the engine can read such caches. A step then reads half as much memory, and logits change by
   * a few 1e-4. Default: false.
   */
  readonly halfCaches?: boolean;
}

/** A function compiled for one shape, and its own arrays: the small inputs by name, and the logits. */
interface DecodeFunction {
  readonly run: CompiledFunction;
  readonly feeds: Readonly<Record<string, DeviceArray>>;
  readonly logits: DeviceArray;
}

type Specs = Readonly<Record<string, Spec>>;

export class Decoder {
  readonly #engine: Engine;
  readonly #lanes: number;
  readonly #config: ModelConfig;
  readonly #capacity: number;
  /** The layout of the caches. Its capacity is the decoder's capacity, plus room for the writes of padding. */
  readonly #layout: CacheLayout;
  readonly #slotReaders: SlotReaders;
  readonly #caches: ReadonlyMap<string, Float32Array<ArrayBuffer>>;
  /** Parts of the caches, by their slots. */
  readonly #views = new Map<string, Readonly<Record<string, DeviceArray>>>();
  readonly #functions = new Map<string, Promise<DecodeFunction>>();
  /** The job of each function, with the current parameters. The decoder reuses jobs, because the engine checks a job only at its first run. */
  readonly #jobs = new Map<DecodeFunction, Job>();
  readonly #lengths: Int32Array;
  readonly #frozen: Readonly<Record<string, DeviceArray>>;
  /** (rows, V) logits of the last step. */
  readonly #logits: Float32Array;
  #parameters: Readonly<Record<string, DeviceArray>>;
  #parametersSet = 0;
  /** null if the engine computes with the caller's parameters in place. */
  readonly #deviceParameters: Float32Array | null;

  /** @throws {RangeError} if slots or capacity are more than an array can hold */
  constructor(
    engine: Engine,
    config: ModelConfig,
    parameters: Float32Array,
    { slots, capacity, frozen = new Float32Array(0), halfCaches = false }: DecoderOptions,
  ) {
    this.#engine = engine;
    this.#lanes = lanesFor(engine, parameters, frozen);
    this.#config = config;
    this.#capacity = capacity;
    this.#layout = {
      capacity: roundUp(capacity + appendStep(capacity), TOKENS_STEP),
      half: halfCaches && config.headWidth % 16 === 0 && engine.runsMachineCode(this.#lanes > 1),
    };
    const caches = { headWidth: config.headWidth, capacity: this.#layout.capacity };
    this.#slotReaders = engine.slotReaders(caches, this.#lanes > 1);
    this.#lengths = new Int32Array(stepRows(slots));
    this.#frozen = parameterArrays(engine, layFrozen(config, frozen));
    const rows = this.#lengths.length;
    const contents = `${slots} slots of ${capacity} tokens`;
    this.#logits = zeros(rows * config.vocabulary, contents);
    this.#deviceParameters = engine.runsReadHostMemory ? null : parameters.slice();
    this.#parameters = this.#layOut(this.#deviceParameters ?? parameters);
    const names = Array.from({ length: config.layers }, (_, layer) => [`keys.${layer}`, `values.${layer}`]).flat();
    const size = rows * this.#slotSize();
    this.#caches = new Map(names.map((name) => [name, zeros(size, contents)]));
    const areRead = engine.runsReadHostMemory && names.length * size <= HUGE_PAGES_FLOATS_MAX;
    if (areRead) preferHugePages(this.#caches.values());
  }

  /** Call this while the decoder computes nothing. Open sequences keep the caches that the older parameters computed. */
  setParameters(parameters: Float32Array): void {
    this.#parametersSet++;
    if (this.#deviceParameters === null) {
      this.#jobs.clear();
      this.#parameters = this.#layOut(parameters);
      return;
    }
    // The addresses on the device must not change, because a recorded graph of kernels contains them.
    this.#deviceParameters.set(parameters);
    this.#engine.toDevice(this.#deviceParameters);
  }

  #layOut(flat: Float32Array): Readonly<Record<string, DeviceArray>> {
    return parameterArrays(this.#engine, layParameters(this.#config, flat));
  }

  /** Maximum number of tokens of a sequence. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Number of calls of `setParameters`. */
  get parametersSet(): number {
    return this.#parametersSet;
  }

  /** Tokens in a slot's cache. */
  length(slot: number): number {
    return this.#lengths[slot]!;
  }

  /** Tokens that still fit into a slot's cache. */
  room(slot: number): number {
    return this.#capacity - this.#lengths[slot]!;
  }

  clear(slot: number): void {
    this.#lengths[slot] = 0;
  }

  /**
   * Empties a slot and sets its cache to 0. Otherwise a number that is not finite could stay in the cache, after the last token of the
   * slot's next sequence. Attention multiplies the places after the last token by 0, and 0 times such a number is NaN.
   */
  wipe(slot: number): void {
    this.clear(slot);
    const zeros = new Float32Array(this.#slotSize());
    for (const cache of Object.values(this.#cachesOf(slot, 1))) cache.write(zeros);
  }

  /** True if sequences can move between slots. False if the caches are in a device's memory, because the host would have to copy whole caches. */
  get canMove(): boolean {
    return this.#engine.runsReadHostMemory;
  }

  /** True: a step computes every slot up to the last slot that gets a token. False: it computes only the slots that get one. */
  get stepsFirstSlots(): boolean {
    return this.#slotReaders !== "all";
  }

  /** Exchanges the sequences of two slots. Call this only if `canMove`. */
  swap(a: number, b: number): void {
    const used = this.#floatsOf(Math.max(this.#lengths[a]!, this.#lengths[b]!));
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

  /** Copies the first `length` tokens of a slot's sequence into an empty slot. Call this only if `canMove`. */
  copy(from: number, to: number, length: number): void {
    const used = this.#floatsOf(length);
    for (const cache of this.#caches.values()) {
      for (const [start, target] of this.#heads(from, to)) cache.copyWithin(target, start, start + used);
    }
    this.#lengths[to] = length;
  }

  /** Keeps the first `length` tokens of a sequence. @throws {RangeError} if the sequence has fewer tokens */
  truncate(slot: number, length: number): void {
    if (!Number.isInteger(length) || length < 0 || length > this.#lengths[slot]!)
      throw new RangeError(`slot ${slot}: cannot keep ${length} of ${this.#lengths[slot]} tokens`);
    this.#lengths[slot] = length;
  }

  /**
   * Appends tokens to several sequences, each in a slot of its own.
   *
   * @returns (n, V) logits after the last token of each sequence, in new memory.
   * @throws {RangeError} if a sequence gets no tokens or more than fit into the capacity, or if two sequences are in one slot. After the
   * error all sequences are unchanged.
   */
  async append(slots: readonly number[], tokens: readonly (readonly number[])[]): Promise<Float32Array> {
    this.#checkAppend(slots, tokens);
    const { vocabulary } = this.#config;
    const all = new Float32Array(slots.length * vocabulary);
    const whole = slots.map((slot, index) => ({ index, slot, added: tokens[index]! }));
    const limits = this.#slotReaders === "appends" ? APPEND_ON_GPU_LIMITS : APPEND_LIMITS;
    for (const pieces of roundsOf(whole)) {
      // Pieces run together if their lengths are equal after rounding up.
      for (const [length, group] of Map.groupBy(pieces, ({ added }) => appendLength(added.length))) {
        for (const batch of batchesOf(group, length, limits)) {
          const logits = await this.#appendBatch(batch, length);
          for (const [row, { index }] of batch.entries())
            all.set(logits.subarray(row * vocabulary, (row + 1) * vocabulary), index * vocabulary);
        }
      }
    }
    return all;
  }

  /** Where the heads of two slots begin in a cache. */
  #heads(a: number, b: number): [inA: number, inB: number][] {
    const size = this.#floatsOf(this.#layout.capacity);
    return Array.from({ length: this.#config.kvHeads }, (_, head) => [
      a * this.#slotSize() + head * size,
      b * this.#slotSize() + head * size,
    ]);
  }

  /**
   * Appends one token to several sequences, each in a slot of its own.
   *
   * @returns logits, which the next call overwrites, and the place of each sequence's first logit.
   * @throws {RangeError} if a sequence is full, or if two sequences are in one slot. After the error all sequences are unchanged.
   */
  async step(slots: readonly number[], tokens: readonly number[]): Promise<{ logits: Float32Array; places: number[] }> {
    const { vocabulary } = this.#config;
    const all = this.#lengths.length;
    /** The token of each slot. A slot without a token gets token 0, whose cache entry lies after the sequence; the next real token overwrites that entry. */
    const fed = new Int32Array(all);
    const isFed = new Uint8Array(all);
    for (const [i, slot] of slots.entries()) {
      if (!(slot < all)) throw new RangeError(`cannot step slot ${slot}: there are ${all} slots`);
      if (isFed[slot] === 1 || slots.length !== tokens.length)
        throw new RangeError(`cannot step ${tokens.length} tokens in slots ${slots}; each needs a slot of its own`);
      if (this.room(slot) === 0)
        throw new RangeError(`slot ${slot}: no room for a token beyond the capacity of ${this.#capacity}`);
      isFed[slot] = 1;
      fed[slot] = tokens[i]!;
    }
    const computed = this.stepsFirstSlots
      ? firstSlots(stepRows(Math.max(...slots) + 1))
      : slotsOfStep(isFed, this.#lengths);
    let total = 0;
    const parts = await Promise.all(
      partsOf(computed.length, this.#lanes).map(async ({ from, rows }) => {
        const compiled = await this.#stepFunction(rows, from);
        const own = computed.subarray(from, from + rows);
        const [last, ownTokens] = [new Int32Array(rows), new Int32Array(rows)];
        for (let row = 0; row < rows; row++) {
          last[row] = this.#lengths[own[row]!]!;
          ownTokens[row] = fed[own[row]!]!;
          total = Math.max(total, last[row]! + 1);
        }
        compiled.feeds["tokens"]!.write(ownTokens);
        compiled.feeds["last"]!.write(last);
        compiled.feeds["slots"]?.write(own);
        return { compiled, from, rows };
      }),
    );
    for (const { compiled } of parts) compiled.feeds["total"]?.write(Int32Array.of(total));
    const jobOf = ({ compiled, from, rows }: (typeof parts)[number]) =>
      this.stepsFirstSlots ? this.#jobInSlots(compiled, from, rows) : this.#jobInSlots(compiled, 0, all);
    await this.#engine.runLanes(parts.map((part) => [jobOf(part)]));
    this.#engine.toHost(this.#logits);
    for (const slot of slots) this.#lengths[slot]! += 1;
    const rowOf = new Int32Array(all);
    for (let row = 0; row < computed.length; row++) rowOf[computed[row]!] = row;
    return { logits: this.#logits, places: slots.map((slot) => rowOf[slot]! * vocabulary) };
  }

  #checkAppend(slots: readonly number[], tokens: readonly (readonly number[])[]): void {
    if (new Set(slots).size !== slots.length || slots.length !== tokens.length)
      throw new RangeError(`cannot append ${tokens.length} pieces to slots ${slots}; each needs a slot of its own`);
    for (const [index, slot] of slots.entries()) {
      const added = tokens[index]!.length;
      if (added > 0 && added <= this.room(slot)) continue;
      throw new RangeError(
        `slot ${slot}: cannot append ${added} tokens; it has ${this.#lengths[slot]} of ${this.#capacity}`,
      );
    }
  }

  /** @returns (rows or more, V) logits after the last token of each piece; the next batch overwrites them. */
  async #appendBatch(pieces: readonly Piece[], length: number): Promise<Float32Array> {
    const compiled = await this.#appendFunction(pieces.length, length);
    const of = (name: string) => new Int32Array(sizeOf(compiled.feeds[name]!.shape));
    const fed = { tokens: of("tokens"), last: of("last"), picks: of("picks") };
    for (const [row, { slot, added }] of pieces.entries()) {
      fed.tokens.set(added, row * length);
      fed.last[row] = this.#lengths[slot]! + length - 1;
      fed.picks[row] = row * length + added.length - 1;
    }
    fed.picks.fill(fed.picks[0]!, pieces.length);
    for (const [name, values] of Object.entries(fed)) compiled.feeds[name]!.write(values);
    compiled.feeds["slots"]?.write(Int32Array.from(pieces, ({ slot }) => slot));
    const job = this.#appendsToSlots
      ? this.#jobInSlots(compiled, 0, this.#lengths.length)
      : this.#job(compiled, this.#cachesOfEach(pieces));
    await this.#engine.runLanes([[job]]);
    for (const { slot, added } of pieces) this.#lengths[slot]! += added.length;
    return compiled.logits.read() as Float32Array;
  }

  get #appendsToSlots(): boolean {
    return this.#slotReaders !== "none";
  }

  #jobInSlots(compiled: DecodeFunction, from: number, rows: number): Job {
    return this.#jobs.getOrInsertComputed(compiled, () => this.#job(compiled, this.#cachesOf(from, rows)));
  }

  #job({ run, feeds, logits }: DecodeFunction, caches: Readonly<Record<string, DeviceArray>>): Job {
    return {
      run,
      inputs: { ...this.#frozen, ...this.#parameters, ...caches, ...feeds },
      outputs: { ...caches, logits },
      repeatable: true,
    };
  }

  /** The caches of the slots `from` to `from + rows - 1`. */
  #cachesOf(from: number, rows: number): Readonly<Record<string, DeviceArray>> {
    return this.#views.getOrInsertComputed(`${rows} from ${from}`, () => {
      const [start, size] = [from * this.#slotSize(), rows * this.#slotSize()];
      const view = ([name, values]: [string, Float32Array]) =>
        [name, this.#engine.array(this.#cacheSpec(rows), values.subarray(start, start + size))] as const;
      return Object.fromEntries([...this.#caches].map(view));
    });
  }

  /** The caches of each piece's slot. */
  #cachesOfEach(pieces: readonly Piece[]): Readonly<Record<string, DeviceArray>> {
    const named = pieces.flatMap(({ slot }, row) =>
      Object.entries(this.#cachesOf(slot, 1)).map(([name, array]) => [`${name}.${row}`, array] as const),
    );
    return Object.fromEntries(named);
  }

  #cacheSpec(rows: number): Spec {
    const { capacity, half } = this.#layout;
    return f32(rows, this.#config.kvHeads, half ? capacity / 2 : capacity, this.#config.headWidth);
  }

  #slotSize(): number {
    return this.#config.kvHeads * this.#floatsOf(this.#layout.capacity);
  }

  /** Number of floats in a cache for this many tokens of a head, in whole blocks. */
  #floatsOf(tokens: number): number {
    const numbers = roundUp(tokens, TOKENS_STEP) * this.#config.headWidth;
    return this.#layout.half ? numbers / 2 : numbers;
  }

  /** Makes a function at its first use. If that fails, the next use tries again. */
  #function(name: string, make: (name: string) => Promise<DecodeFunction>): Promise<DecodeFunction> {
    return this.#functions.getOrInsertComputed(name, () => {
      const made = make(name);
      made.catch(() => this.#functions.delete(name));
      return made;
    });
  }

  #appendFunction(rows: number, length: number): Promise<DecodeFunction> {
    return this.#function(`append ${rows} x ${length}`, async (name) => {
      const picks = Math.max(rows, ROWS_MIN);
      const toSlots = this.#appendsToSlots;
      const slots = toSlots ? { slots: i32(rows) } : {};
      const feeds = { tokens: i32(rows, length), last: i32(rows), picks: i32(picks), ...slots };
      const layers = [...this.#caches.keys()];
      const ofEachRow = (key: string) => Array.from({ length: rows }, (_, row) => `${key}.${row}`);
      const run = toSlots
        ? await this.#compile(name, feeds, layers, this.#lengths.length)
        : await this.#compile(name, feeds, layers.flatMap(ofEachRow), 1);
      return { run, feeds: this.#arrays(feeds), logits: this.#engine.array(f32(picks, this.#config.vocabulary)) };
    });
  }

  /** The function of rows `from` to `from + rows - 1` of a step. */
  #stepFunction(rows: number, from: number): Promise<DecodeFunction> {
    return this.#function(`step ${rows} from ${from}`, async () => {
      const inSlots = !this.stepsFirstSlots;
      const feeds = { tokens: i32(rows, 1), last: i32(rows), ...(inSlots ? { slots: i32(rows) } : { total: i32() }) };
      const slots = inSlots ? this.#lengths.length : rows;
      const run =
        from === 0
          ? await this.#compile(`step ${rows}`, feeds, [...this.#caches.keys()], slots, true)
          : (await this.#stepFunction(rows, 0)).run;
      const { vocabulary } = this.#config;
      const logits = this.#logits.subarray(from * vocabulary, (from + rows) * vocabulary);
      return { run, feeds: this.#arrays(feeds), logits: this.#engine.array(f32(rows, vocabulary), logits) };
    });
  }

  /**
   * @param feeds   the inputs besides parameters and caches
   * @param caches  the names of the caches. Each has this number of slots
   */
  #compile(name: string, feeds: Specs, caches: readonly string[], slots: number, fewRows = false) {
    const config = this.#config;
    const parameters = [...frozenShapes(config), ...parameterShapes(config)].map(([key, shape]) => [
      key,
      f32(...shape),
    ]);
    const cache = this.#cacheSpec(slots);
    const specs = {
      ...feeds,
      ...Object.fromEntries(parameters),
      ...Object.fromEntries(caches.map((key) => [key, cache])),
    };
    const decode: TensorFunction = (x) => {
      const { states, caches } = decodeStates(config, x as Parameters<typeof decodeStates>[1], this.#layout);
      return { logits: logits(config, x, states), ...caches };
    };
    return this.#engine.compile(`decode: ${name}`, decode, specs, { inLane: this.#lanes > 1, fewRows });
  }

  #arrays(specs: Specs): Record<string, DeviceArray> {
    return Object.fromEntries(Object.entries(specs).map(([key, spec]) => [key, this.#engine.array(spec)]));
  }
}

/** @throws {RangeError} if no array holds so many values. @param held  what needs the array, for the error text */
function zeros(count: number, held: string): Float32Array<ArrayBuffer> {
  try {
    return new Float32Array(count);
  } catch (cause) {
    const gigabytes = (4e-9 * count).toFixed(1);
    throw new RangeError(
      `cannot decode in ${held}: they need an array of ${gigabytes} GB, and an array has less than 4.29 GB; lower the slots ` +
        "(sampler.slots, or --slots of serve) or the tokens (rollout.contextTokensMax)",
      { cause },
    );
  }
}
