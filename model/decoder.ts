/**
 * Decodes many sequences at once, each with its own key/value cache that stays until the sequence is closed.
 * Tokens in, logits out: it knows no tokenizer, no sampling and no episodes.
 *
 * - A token's logits depend on its own sequence alone, bit for bit: not on the batch, the slot or the company. So a rollout is
 *   the same however many samplers share it. (onnxruntime adds up a product in the same order for any number of rows but one,
 *   so one-token steps never run with fewer than `ROWS_MIN`.)
 * - A cache entry is never computed twice: a later turn only appends.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type CompiledFunction, type DeviceArray, type Engine, f32, i32, type Spec } from "./engine/engine.ts";
import { sizeOf } from "./engine/graph.ts";
import { layParameters, parameterArrays } from "./parameters.ts";
import { decodeStates, logits, type ModelConfig, parameterShapes } from "./transformer.ts";

const ROWS_MIN = 4;
/** Appended tokens are padded to a multiple of this, so that few shapes are compiled. */
const APPEND_MULTIPLE = 8;

export interface DecoderOptions {
  /** Sequences open at once. */
  readonly slots: number;
  /** Tokens of one sequence. */
  readonly capacity: number;
}

/** A compiled shape and the small arrays it is fed with. */
interface Shape {
  readonly run: CompiledFunction;
  readonly tokens: DeviceArray;
  readonly last: DeviceArray;
  readonly total: DeviceArray;
  readonly pick: DeviceArray;
  readonly logits: DeviceArray;
}

export class Decoder {
  readonly #engine: Engine;
  readonly #config: ModelConfig;
  readonly #options: DecoderOptions;
  readonly #caches: Readonly<Record<string, Float32Array>>;
  readonly #shapes = new Map<string, Promise<Shape>>();
  readonly #views = new Map<string, Record<string, DeviceArray>>();
  readonly #lengths: Int32Array;
  #parameters: Readonly<Record<string, DeviceArray>>;

  constructor(engine: Engine, config: ModelConfig, parameters: Float32Array, options: DecoderOptions) {
    const { slots, capacity } = options;
    this.#engine = engine;
    this.#config = config;
    // The smallest batch must find as many cache rows.
    this.#options = {
      slots: Math.max(slots, ROWS_MIN),
      capacity: Math.ceil(capacity / APPEND_MULTIPLE) * APPEND_MULTIPLE,
    };
    this.#lengths = new Int32Array(this.#options.slots);
    this.#parameters = parameterArrays(engine, layParameters(config, parameters));
    const size = this.#options.slots * this.#rowSize();
    this.#caches = Object.fromEntries(this.#cacheNames().map((name) => [name, new Float32Array(size)]));
  }

  /** Use these parameters from now on. Sequences that are open keep what older ones computed: close them first. */
  setParameters(parameters: Float32Array): void {
    this.#parameters = parameterArrays(this.#engine, layParameters(this.#config, parameters));
  }

  /** Tokens in a slot's cache. */
  length(slot: number): number {
    return this.#lengths[slot]!;
  }

  /** Tokens that still fit into a slot's cache. */
  room(slot: number): number {
    return this.#options.capacity - this.#lengths[slot]!;
  }

  /** Forget a slot's sequence. */
  clear(slot: number): void {
    this.#lengths[slot] = 0;
  }

  /** Copy the sequence of one slot to another. */
  move(from: number, to: number): void {
    const row = this.#rowSize();
    for (const cache of Object.values(this.#caches)) cache.copyWithin(to * row, from * row, (from + 1) * row);
    this.#lengths[to] = this.#lengths[from]!;
    this.#lengths[from] = 0;
  }

  /**
   * Append tokens to one sequence.
   *
   * @returns (V) logits after the last of them; overwritten by the next call of the same length.
   * @throws {RangeError} if they do not fit into the capacity.
   */
  async append(slot: number, tokens: readonly number[] | Int32Array): Promise<Float32Array> {
    const length = this.#lengths[slot]! + tokens.length;
    if (tokens.length === 0 || length > this.#options.capacity)
      throw new RangeError(
        `slot ${slot}: ${this.#lengths[slot]} + ${tokens.length} tokens, capacity ${this.#options.capacity}`,
      );
    const room = this.#options.capacity - this.#lengths[slot]!;
    const padded = Math.min(Math.ceil(tokens.length / APPEND_MULTIPLE) * APPEND_MULTIPLE, room);
    const shape = await this.#shape(1, padded);
    const values = new Int32Array(padded);
    values.set(tokens);
    shape.tokens.write(values);
    // The padding's keys land behind the sequence, where the next tokens overwrite them unseen.
    shape.last.write(Int32Array.of(this.#lengths[slot]! + padded - 1));
    shape.total.write(Int32Array.of(this.#lengths[slot]! + padded));
    shape.pick.write(Int32Array.of(tokens.length - 1));
    await this.#run(shape, slot, 1);
    this.#lengths[slot] = length;
    return shape.logits.read() as Float32Array;
  }

  /**
   * Append tokens to several sequences, each in a slot of its own.
   *
   * @returns (n, V) logits after the last token of each; the caller's to keep.
   * @throws {RangeError} if a sequence does not fit into the capacity.
   */
  async appendMany(
    slots: readonly number[],
    tokens: readonly (readonly number[] | Int32Array)[],
  ): Promise<Float32Array> {
    const { vocabulary } = this.#config;
    const logits = new Float32Array(slots.length * vocabulary);
    for (const [i, slot] of slots.entries()) logits.set(await this.append(slot, tokens[i]!), i * vocabulary);
    return logits;
  }

  /**
   * Append one token to each of some sequences, all in slots 0 … rows - 1.
   *
   * @param tokens  (rows) the token for each slot; a negative one leaves that slot as it is.
   * @returns (rows, V) logits; only rows that got a token mean anything; overwritten by the next call.
   */
  async step(tokens: Int32Array): Promise<Float32Array> {
    const rows = Math.max(tokens.length, ROWS_MIN);
    const shape = await this.#shape(rows, 1);
    const feed = shape.tokens.read() as Int32Array;
    const last = shape.last.read() as Int32Array;
    let total = 0;
    for (let slot = 0; slot < rows; slot++) {
      const token = tokens[slot] ?? -1;
      if (token >= 0 && this.#lengths[slot]! >= this.#options.capacity)
        throw new RangeError(`slot ${slot}: no room for a token beyond the capacity of ${this.#options.capacity}`);
      // A slot that waits is fed a token too; what that writes lies behind its sequence and is overwritten unseen.
      feed[slot] = Math.max(token, 0);
      last[slot] = Math.min(this.#lengths[slot]!, this.#options.capacity - 1);
      total = Math.max(total, last[slot]! + 1);
    }
    shape.total.write(Int32Array.of(total));
    await this.#run(shape, 0, rows);
    for (const [slot, token] of tokens.entries()) if (token >= 0) this.#lengths[slot]! += 1;
    return shape.logits.read() as Float32Array;
  }

  async #run(shape: Shape, slot: number, rows: number): Promise<void> {
    const caches = this.#cacheView(slot, rows);
    const { run, tokens, last, total, pick, logits } = shape;
    await run.run({ ...this.#parameters, ...caches, tokens, last, total, pick }, { ...caches, logits });
  }

  #rowSize(): number {
    return this.#config.kvHeads * this.#options.capacity * this.#config.headWidth;
  }

  #cacheNames(): string[] {
    return Array.from({ length: this.#config.layers }, (_, layer) => [`keys.${layer}`, `values.${layer}`]).flat();
  }

  #cacheSpec(rows: number): Spec {
    return f32(rows, this.#config.kvHeads, this.#options.capacity, this.#config.headWidth);
  }

  /** The caches of slots `slot` … `slot + rows - 1` as arrays of their own, over the same memory. */
  #cacheView(slot: number, rows: number): Record<string, DeviceArray> {
    const key = `${slot} ${rows}`;
    const known = this.#views.get(key);
    if (known !== undefined) return known;
    const row = this.#rowSize();
    const spec = this.#cacheSpec(rows);
    const view = Object.fromEntries(
      Object.entries(this.#caches).map(([name, values]) => {
        return [name, this.#engine.array(spec, values.subarray(slot * row, (slot + rows) * row))];
      }),
    );
    this.#views.set(key, view);
    return view;
  }

  #shape(rows: number, added: number): Promise<Shape> {
    const key = `${rows}x${added}`;
    const known = this.#shapes.get(key);
    if (known !== undefined) return known;
    const shape = this.#compile(rows, added);
    this.#shapes.set(key, shape);
    return shape;
  }

  async #compile(rows: number, added: number): Promise<Shape> {
    const config = this.#config;
    const picks = added === 1 ? rows : 1;
    const small = { tokens: i32(rows, added), last: i32(rows), total: i32(), pick: i32(picks) };
    const cacheNames = this.#cacheNames();
    const inputs: Record<string, Spec> = { ...small };
    for (const [name, shape] of parameterShapes(config)) inputs[name] = f32(...shape);
    for (const name of cacheNames) inputs[name] = this.#cacheSpec(rows);
    const run = await this.#engine.compile(
      `decode ${rows} x ${added}`,
      (x) => {
        const caches = Object.fromEntries(cacheNames.map((name) => [name, x[name]!]));
        const result = decodeStates(config, x, x["tokens"]!, x["last"]!, x["total"]!, caches);
        const states = added === 1 ? result.states : tf.gather(result.states, x["pick"]!);
        return { logits: logits(config, x, states), ...result.caches };
      },
      inputs,
    );
    const array = (spec: Spec) => this.#engine.array(spec, new Int32Array(sizeOf(spec.shape)));
    return {
      run,
      tokens: array(small.tokens),
      last: array(small.last),
      total: array(small.total),
      pick: array(small.pick),
      logits: this.#engine.array(f32(picks, config.vocabulary)),
    };
  }
}
