/**
 * A network in training: parameters, gradients, optimizer, and the compiled functions that compute with them. It splits sequences into
 * micro-batches, runs an `Objective` (objective.ts) on each micro-batch, and adds the gradients up. A large minibatch therefore needs no
 * more working memory than the micro-batches that run at once.
 */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { type DeviceArray, type Engine, f32, i32, type Job, lanesFor, listsFor, type Spec } from "../engine/engine.ts";
import { hasTreeKernel, type PrefixTree } from "../policy/attention.ts";
import { frozenShapes, type ModelConfig, parameterShapes } from "../policy/model-config.ts";
import { tokenLogProbs } from "../policy/ops.ts";
import { layParameters, type Parameters, parameterArrays } from "../policy/parameters.ts";
import { hiddenStates, logits, stateValues } from "../policy/transformer.ts";
import {
  type BatchLimits,
  checkSequences,
  layRows,
  type MicroBatch,
  readTokens,
  rowBatches,
  type Sequence,
} from "./batch.ts";
import type { Head, Objective, TokenInputs } from "./objective.ts";
import {
  type Matrix,
  Optimizer,
  type OptimizerName,
  type OptimizerResult,
  type OptimizerSettings,
  type OptimizerState,
} from "./optimizer.ts";
import { treeBatches } from "./prefix-tree.ts";

/** Maximum number of compiled functions to keep. Each holds a few megabytes. */
const COMPILED_MAX = 64;

type Arrays = Readonly<Record<string, DeviceArray>>;

interface Compiled {
  /** Returns a job, with its own arrays, for the next micro-batch of this shape in this list. After `finish`, it returns the same jobs again. */
  take(list: number): ListJob;
  finish(): void;
  dispose(): Promise<void>;
}

interface ListJob {
  readonly inputs: Arrays;
  readonly results: Arrays;
  readonly job: Job;
}

/** The sum of the gradients of a list of micro-batches. */
interface ListGradients {
  readonly flat: Float32Array;
  readonly arrays: Arrays;
}

/** Arrays that all runs of a function in one list share. Every array of `outputs` is also in `inputs`. */
interface Shared {
  readonly inputs: Arrays;
  readonly outputs: Arrays;
}

const NONE = new Float32Array(0);

export interface TrainingOptions {
  /** The optimizer's state to continue from. */
  readonly state?: OptimizerState;
  /** Parameters that adapters do not change; needed if the config has adapters. */
  readonly frozen?: Parameters | null;
  /** The optimizer of the layers' matrices: AdamW or Muon. AdamW updates the other parameters in both cases. Default: adamw. */
  readonly optimizer?: OptimizerName;
}

/** What an update needs of the policy in training. The policy's parameters may be on a server: actors/tinker/trained-model.ts. */
export type TrainedPolicy = Pick<Network, "accumulate" | "step" | "score">;

export class Network {
  readonly config: ModelConfig;
  readonly parameters: Parameters;
  readonly #engine: Engine;
  /** One sum of gradients for each list of micro-batches. Lanes (engine/lanes.ts) run the lists. The optimizer adds the sums up. */
  readonly #gradients: readonly ListGradients[];
  /** null if this network only scores. */
  readonly #optimizer: Optimizer | null;
  readonly #lanes: number;
  /** The parameters that a forward pass reads, trained and frozen. */
  readonly #parameterArrays: Arrays;
  readonly #compiled = new Map<string, Promise<Compiled>>();

  private constructor(
    engine: Engine,
    config: ModelConfig,
    parameters: Parameters,
    frozen: Parameters | null,
    gradients: readonly ListGradients[],
    optimizer: Optimizer | null,
  ) {
    this.config = config;
    this.parameters = parameters;
    this.#engine = engine;
    this.#gradients = gradients;
    this.#optimizer = optimizer;
    this.#lanes = lanesFor(engine, parameters.flat, frozen?.flat ?? NONE);
    const kept = frozen === null ? {} : parameterArrays(engine, frozen);
    this.#parameterArrays = { ...kept, ...parameterArrays(engine, parameters) };
  }

  static async create(
    engine: Engine,
    config: ModelConfig,
    parameters: Parameters,
    { state, frozen = null, optimizer: method = "adamw" }: TrainingOptions = {},
  ): Promise<Network> {
    const lists = listsFor(lanesFor(engine, parameters.flat, frozen?.flat ?? NONE));
    const gradients = Array.from({ length: lists }, () => {
      const gradient = layParameters(config);
      return { flat: gradient.flat, arrays: parameterArrays(engine, gradient, "gradient.") };
    });
    const optimizer = await Optimizer.create(
      engine,
      parameters.flat,
      gradients.map(({ flat }) => flat),
      state,
      method === "muon" ? hiddenMatrices(config, parameters) : [],
    );
    return new Network(engine, config, parameters, frozen, gradients, optimizer);
  }

  /** A network that only scores: it has neither gradients nor optimizer. */
  static scorer(engine: Engine, config: ModelConfig, parameters: Parameters): Network {
    return new Network(engine, config, parameters, null, [], null);
  }

  get optimizerState(): OptimizerState {
    return this.#trained().state;
  }

  #trained(): Optimizer {
    if (this.#optimizer === null)
      throw new TypeError("this network has no optimizer: Network.scorer made it; make it with Network.create");
    return this.#optimizer;
  }

  /**
   * Adds the objective's gradients over these sequences to the gradients accumulated so far.
   *
   * @returns sums of loss and metrics
   * @throws {RangeError} if a sequence has no written token, its first token is written, or its written positions do not ascend
   */
  async accumulate(
    objective: Objective,
    sequences: readonly Sequence[],
    inputs: TokenInputs,
    limits: BatchLimits,
    temperature = 1,
  ): Promise<Record<string, number>> {
    const sums: Record<string, number> = {};
    await this.#runAll(
      this.#batches(sequences, limits),
      (batch) => this.#gradientFunction(objective, batch, temperature),
      (batch, { inputs: arrays }) => {
        for (const name of objective.inputs) arrays[name]!.write(layRows(batch, inputs[name]!));
      },
      (_, { results }) => {
        for (const [name, array] of Object.entries(results))
          sums[name] = (sums[name] ?? 0) + (array.read()[0] as number);
      },
    );
    return sums;
  }

  /** Takes one optimizer step on the gradients, and sets them to zero. */
  step(settings: OptimizerSettings): Promise<OptimizerResult> {
    return this.#trained().step(settings);
  }

  /** Sets the gradients to zero. @returns the Euclidean norm that they had */
  async dropGradient(): Promise<number> {
    const optimizer = this.#trained();
    const norm = await optimizer.norm();
    optimizer.clearGradients();
    return norm;
  }

  /** Copies the parameters from the GPU to the host's memory; with `moments`, the optimizer's state too. */
  toHost({ moments }: { readonly moments: boolean }): void {
    for (const values of this.#memory(moments)) this.#engine.toHost(values);
  }

  /** Copies parameters and moments from the host's memory to the GPU. */
  toDevice(): void {
    for (const values of this.#memory(true)) this.#engine.toDevice(values);
  }

  #memory(moments: boolean): Float32Array[] {
    const { moment, variance } = this.optimizerState;
    return [this.parameters.flat, ...(moments ? [moment, variance] : [])];
  }

  /** The critic's value before every written token: (sequences)(written tokens). */
  async values(sequences: readonly Sequence[], limits: BatchLimits): Promise<Float32Array[]> {
    return (await this.#score("value", sequences, limits, 1))["values"]!;
  }

  /** Log-probability and entropy of every written token: (sequences)(written tokens) each. */
  async score(
    sequences: readonly Sequence[],
    limits: BatchLimits,
    temperature = 1,
  ): Promise<{ logProbs: Float32Array[]; entropies: Float32Array[] }> {
    const { logProbs, entropies } = await this.#score("tokens", sequences, limits, temperature);
    return { logProbs: logProbs!, entropies: entropies! };
  }

  async #score(head: Head, sequences: readonly Sequence[], limits: BatchLimits, temperature: number) {
    this.#expectHead(head);
    const scores: Record<string, Float32Array[]> = {};
    await this.#runAll(
      this.#batches(sequences, limits),
      (batch) => this.#scoreFunction(head, batch, temperature),
      () => {},
      (batch, { results }) => {
        for (const [name, array] of Object.entries(results)) {
          const padded = array.read() as Float32Array;
          const rows = scores[name] ?? [];
          scores[name] = rows;
          batch.members.forEach((member, row) => {
            rows[member] = padded.slice(row * batch.width, row * batch.width + batch.counts[row]!);
          });
        }
      },
    );
    return scores;
  }

  /** Prefix trees if attention over trees runs in machine code. Otherwise rows: other code would copy the shared keys and values of a tree. */
  #batches(sequences: readonly Sequence[], limits: BatchLimits): MicroBatch[] {
    checkSequences(sequences);
    const longest = sequences.reduce((most, sequence) => Math.max(most, readTokens(sequence).length), 0);
    const { headWidth, layerKinds } = this.config;
    const window = layerKinds.includes("sliding") ? this.config.window : null;
    if (!hasTreeKernel({ headWidth, window }, longest) || !this.#engine.runsMachineCode(this.#lanes > 1))
      return rowBatches(sequences, limits);
    return treeBatches(sequences, limits, this.#lanes);
  }

  /**
   * Runs a function on each micro-batch. The micro-batches are in lists; a free lane takes the next micro-batch of a list.
   *
   * @param write  fills the function's inputs besides the batch itself.
   * @param done   runs for each batch, in the order of the batches.
   */
  async #runAll(
    batches: readonly MicroBatch[],
    compile: (batch: MicroBatch) => Promise<Compiled>,
    write: (batch: MicroBatch, job: ListJob) => void,
    done: (batch: MicroBatch, job: ListJob) => void,
  ): Promise<void> {
    const lists: Job[][] = Array.from({ length: listsFor(this.#lanes) }, () => []);
    const used: { batch: MicroBatch; job: ListJob; compiled: Compiled }[] = [];
    for (const [i, list] of assignLists(batches, lists.length).entries()) {
      const batch = batches[i]!;
      const compiled = await compile(batch);
      const job = compiled.take(list);
      for (const [name, values] of Object.entries(arraysOf(batch))) job.inputs[name]!.write(values);
      write(batch, job);
      used.push({ batch, job, compiled });
      lists[list]!.push(job.job);
    }
    try {
      await this.#engine.runLanes(lists);
      for (const { batch, job } of used) done(batch, job);
    } finally {
      for (const { compiled } of used) compiled.finish();
      this.#dropOldest();
    }
  }

  #expectHead(head: Head): void {
    if (this.config.head !== head && this.config.head !== "both")
      throw new TypeError(`this network's head is "${this.config.head}"; this call needs "${head}" or "both"`);
  }

  /** The arrays that a head uses, out of `arrays`. @param prefix  "gradient." if `arrays` holds gradients */
  #arraysOfHead(head: Head, arrays: Arrays, prefix = ""): Arrays {
    const config = { ...this.config, head };
    const frozen = prefix === "" ? frozenShapes(config).keys() : [];
    const names = [...frozen, ...parameterShapes(config).keys()].map((name) => prefix + name);
    return Object.fromEntries(names.map((name) => [name, arrays[name]!]));
  }

  /** (B, W) one head's numbers for each written token: values, or log-probabilities and entropies. W is the batch's `width`. */
  #scores(
    head: Head,
    parameters: Readonly<Record<string, tf.Tensor>>,
    x: Readonly<Record<string, tf.Tensor>>,
    { temperature, rows, width, tree }: MicroBatch & { readonly temperature: number },
  ): Record<string, tf.Tensor> {
    const byRow = (values: tf.Tensor) =>
      tf.reshape(tf.gather(tf.reshape(values, [-1]), x["pickOfWritten"]!), [rows, width]);
    // `batchSpecs` has the inputs that a tree needs.
    const prefixTree = tree === null ? undefined : (x as unknown as PrefixTree);
    const states = hiddenStates(this.config, parameters, x["tokens"]!, x["picks"]!, prefixTree);
    if (head === "value") return { values: byRow(stateValues(parameters, states)) };
    const all = logits(this.config, parameters, states);
    const { logProbs, entropies } = tokenLogProbs(temperature === 1 ? all : tf.div(all, temperature), x["targets"]!);
    return { logProbs: byRow(logProbs), entropies: byRow(entropies) };
  }

  #gradientFunction(objective: Objective, batch: MicroBatch, temperature: number): Promise<Compiled> {
    const { head } = objective;
    this.#expectHead(head);
    return this.#cached(`${objective.name} ${shapeKey(batch, temperature)}`, (name) => {
      const names = [...parameterShapes({ ...this.config, head }).keys()];
      const { rows, width } = batch;
      const given: Record<string, Spec> = batchSpecs(batch);
      for (const name of objective.inputs) given[name] = f32(rows, width);
      const own = this.#arraysOfHead(head, this.#parameterArrays);
      const shared = this.#gradients.map(({ arrays }) => {
        const outputs = this.#arraysOfHead(head, arrays, "gradient.");
        return { inputs: { ...own, ...outputs }, outputs };
      });
      return this.#compile(name, given, shared, (x) => {
        let metrics: Record<string, tf.Tensor> = {};
        const loss = (...values: tf.Tensor[]) => {
          const parameters = { ...x, ...Object.fromEntries(names.map((name, i) => [name, values[i]!])) };
          // `#expectHead` has checked the head, so the scores are those that the objective is for.
          const scores = this.#scores(head, parameters, x, { ...batch, temperature }) as never;
          const result = objective.loss(scores, x);
          metrics = Object.fromEntries(Object.entries(result.metrics).map(([name, value]) => [name, tf.keep(value)]));
          return result.loss;
        };
        const { value, grads } = tf.valueAndGrads(loss)(names.map((name) => x[name]!));
        const sums = names.map((name, i) => [`gradient.${name}`, tf.add(x[`gradient.${name}`]!, grads[i]!)]);
        return { loss: value, ...metrics, ...Object.fromEntries(sums) };
      });
    });
  }

  #scoreFunction(head: Head, batch: MicroBatch, temperature: number): Promise<Compiled> {
    return this.#cached(`score ${head} ${shapeKey(batch, temperature)}`, (name) => {
      const shared = { inputs: this.#arraysOfHead(head, this.#parameterArrays), outputs: {} };
      const everyList = new Array<Shared>(listsFor(this.#lanes)).fill(shared);
      return this.#compile(name, batchSpecs(batch), everyList, (x) =>
        this.#scores(head, x, x, { ...batch, temperature }),
      );
    });
  }

  /** Keeps the functions in the order of their last use, because `#dropOldest` drops those at the front. */
  #cached(name: string, make: (name: string) => Promise<Compiled>): Promise<Compiled> {
    const compiled = this.#compiled.get(name) ?? make(name);
    this.#compiled.delete(name);
    this.#compiled.set(name, compiled);
    return compiled;
  }

  #dropOldest(): void {
    for (const [name, unused] of this.#compiled) {
      if (this.#compiled.size <= COMPILED_MAX) return;
      this.#compiled.delete(name);
      void unused.then((compiled) => compiled.dispose());
    }
  }

  /** @param shared  the arrays of each list. Outputs that are not among these arrays get arrays of their own. */
  async #compile(
    name: string,
    given: Readonly<Record<string, Spec>>,
    shared: readonly Shared[],
    build: (x: Readonly<Record<string, tf.Tensor>>) => Record<string, tf.Tensor>,
  ): Promise<Compiled> {
    const run = await this.#engine.compile(
      name,
      build,
      { ...given, ...shared[0]!.inputs },
      { inLane: this.#lanes > 1 },
    );
    const arrays = (specs: readonly [string, Spec][]) =>
      Object.fromEntries(specs.map(([key, spec]) => [key, this.#engine.array(spec)]));
    const results = Object.entries(run.outputs).filter(([key]) => !(key in shared[0]!.outputs));
    const jobs = shared.map((): ListJob[] => []);
    const taken = shared.map(() => 0);
    const make = ({ inputs, outputs }: Shared): ListJob => {
      const own = { inputs: arrays(Object.entries(given)), results: arrays(results) };
      const job = { run, inputs: { ...inputs, ...own.inputs }, outputs: { ...outputs, ...own.results } };
      return { ...own, job };
    };
    return {
      take(list) {
        const index = taken[list]!++;
        const own = jobs[list]!;
        own[index] ??= make(shared[list]!);
        return own[index];
      },
      finish() {
        taken.fill(0);
      },
      dispose: () => run.dispose(),
    };
  }
}

/** The list of each batch: the one with the fewest tokens so far. The batches with most tokens come first, so the lists fill evenly. */
function assignLists(batches: readonly MicroBatch[], lists: number): number[] {
  const load = new Array<number>(lists).fill(0);
  return batches.map(({ tokens }) => {
    const list = load.indexOf(Math.min(...load));
    load[list]! += tokens.length;
    return list;
  });
}

/** The arrays of a micro-batch that its functions read. */
const arraysOf = ({ tokens, tree, picks, targets, pickOfWritten }: MicroBatch) => ({
  tokens,
  picks,
  targets,
  pickOfWritten,
  ...tree,
});

/** Equal keys mean equal shapes of all arrays. */
const shapeKey = ({ tokens, length, tree, picks, rows, width }: MicroBatch, temperature: number) => {
  const layout = tree === null ? "rows" : `tree of ${tree.branches.length / 2}`;
  return `${tokens.length}x${length} ${layout} ${picks.length} ${rows}x${width}@${temperature}`;
};

function batchSpecs(batch: MicroBatch): Record<string, Spec> {
  const { tokens, length, tree } = batch;
  const specs = Object.entries(arraysOf(batch)).map(([name, values]) => [name, i32(values.length)] as const);
  const all = Object.fromEntries(specs);
  if (tree === null) return { ...all, tokens: i32(tokens.length / length, length) };
  const branches = tree.branches.length / 2;
  return { ...all, branches: i32(branches, 2), tokenOfPath: i32(branches, length) };
}

/** The matrices of the transformer layers, without embedding and output layer, in memory order. A stack of experts gives one matrix per expert. */
function hiddenMatrices({ experts }: ModelConfig, { flat, views }: Parameters): Matrix[] {
  return [...views]
    .filter(([name, { shape }]) => name.startsWith("model.layers.") && shape.length > 1)
    .flatMap(([name, { shape, values }]) => {
      const count = experts !== null && name.includes(".mlp.experts.") ? experts.count : 1;
      const size = values.length / count;
      const columns = shape.at(-1)!;
      const start = (values.byteOffset - flat.byteOffset) / values.BYTES_PER_ELEMENT;
      const each = [size / columns, columns] as const;
      return Array.from({ length: count }, (_, i) => ({ start: start + i * size, shape: each }));
    });
}
