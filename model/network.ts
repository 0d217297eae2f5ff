/**
 * Parameters, their gradients and the optimiser, and the compiled functions that fill them: what a learner owns.
 * An `Objective` says what is computed from the written tokens; the network runs it over micro-batches and adds gradients up,
 * so a minibatch of any size costs the memory of one micro-batch.
 */
import * as tf from "@tensorflow/tfjs-core";
import { layRows, type MicroBatch } from "./batch.ts";
import { type CompiledFunction, type DeviceArray, type Engine, f32, i32, type Spec } from "./engine/engine.ts";
import { tokenLogProbs } from "./ops.ts";
import { AdamW, type AdamWSettings, type AdamWState, type OptimizerResult } from "./optimizer.ts";
import { layParameters, type Parameters, parameterArrays } from "./parameters.ts";
import { hiddenStates, logits, type ModelConfig, parameterShapes, stateValues } from "./transformer.ts";

/** What the network says of each written token, (B, W) each. */
export interface TokenScores {
  readonly logProbs: tf.Tensor;
  readonly entropies: tf.Tensor;
}

/** What a critic says of the state before each written token, (B, W). */
export interface ValueScores {
  readonly values: tf.Tensor;
}

interface Loss {
  readonly loss: tf.Scalar;
  readonly metrics: Readonly<Record<string, tf.Scalar>>;
}

interface ObjectiveOf<Head extends ModelConfig["head"], Scores> {
  /** Which networks it is for. */
  readonly head: Head;
  /** Names the compiled function; equal names must mean equal functions. */
  readonly name: string;
  /** Per-token inputs, (B, W) each, besides the tokens themselves. */
  readonly inputs: readonly string[];
  readonly loss: (scores: Scores, inputs: Readonly<Record<string, tf.Tensor>>) => Loss;
}

/** A loss over written tokens. Losses and metrics are sums, so that those of micro-batches add up to the minibatch's. */
export type Objective = ObjectiveOf<"tokens", TokenScores> | ObjectiveOf<"value", ValueScores>;

/** Per-token values of every sequence, by input name: [sequence][written token]. */
export type TokenInputs = Readonly<Record<string, readonly ArrayLike<number>[]>>;

/** Compiled shapes kept; each holds a few megabytes, and a long run meets many. */
const COMPILED_MAX = 32;

interface Compiled {
  readonly run: CompiledFunction;
  readonly inputs: Readonly<Record<string, DeviceArray>>;
  readonly results: Readonly<Record<string, DeviceArray>>;
}

export class Network {
  readonly config: ModelConfig;
  readonly parameters: Parameters;
  readonly #engine: Engine;
  readonly #gradients: Parameters;
  readonly #optimizer: AdamW;
  readonly #parameterArrays: Readonly<Record<string, DeviceArray>>;
  readonly #gradientArrays: Readonly<Record<string, DeviceArray>>;
  readonly #compiled = new Map<string, Promise<Compiled>>();

  private constructor(
    engine: Engine,
    config: ModelConfig,
    parameters: Parameters,
    gradients: Parameters,
    optimizer: AdamW,
  ) {
    this.config = config;
    this.parameters = parameters;
    this.#engine = engine;
    this.#gradients = gradients;
    this.#optimizer = optimizer;
    this.#parameterArrays = parameterArrays(engine, parameters);
    this.#gradientArrays = parameterArrays(engine, gradients, "gradient.");
  }

  /** @param state  of the optimiser, to go on from. */
  static async create(
    engine: Engine,
    config: ModelConfig,
    parameters: Parameters,
    state?: AdamWState,
  ): Promise<Network> {
    const gradients = layParameters(config);
    const optimizer = await AdamW.create(engine, parameters.flat, gradients.flat, state);
    return new Network(engine, config, parameters, gradients, optimizer);
  }

  get optimizerState(): AdamWState {
    return this.#optimizer.state;
  }

  /** Add the objective's gradients over these micro-batches to what is there. @returns summed loss and metrics. */
  async accumulate(
    objective: Objective,
    batches: readonly MicroBatch[],
    inputs: TokenInputs,
    temperature = 1,
  ): Promise<Record<string, number>> {
    const sums: Record<string, number> = {};
    for (const batch of batches) {
      const { run, inputs: arrays, results } = await this.#gradientFunction(objective, batch, temperature);
      writeBatch(arrays, batch);
      for (const name of objective.inputs) arrays[name]!.write(layRows(batch, inputs[name]!));
      await run.run(
        { ...this.#parameterArrays, ...this.#gradientArrays, ...arrays },
        { ...this.#gradientArrays, ...results },
      );
      for (const [name, array] of Object.entries(results)) sums[name] = (sums[name] ?? 0) + (array.read()[0] as number);
    }
    return sums;
  }

  /** One optimiser step on the gradients so far, which are then zero again. */
  async step(settings: AdamWSettings): Promise<OptimizerResult> {
    const result = await this.#optimizer.step(settings);
    this.#gradients.flat.fill(0);
    return result;
  }

  /** A critic's value before every written token, by sequence; as long as it has written tokens. */
  async values(batches: readonly MicroBatch[]): Promise<Float32Array[]> {
    return (await this.#score("value", batches, 1))["values"]!;
  }

  /** Log-probability and entropy of every written token, by sequence. */
  async score(
    batches: readonly MicroBatch[],
    temperature = 1,
  ): Promise<{ logProbs: Float32Array[]; entropies: Float32Array[] }> {
    const { logProbs, entropies } = await this.#score("tokens", batches, temperature);
    return { logProbs: logProbs!, entropies: entropies! };
  }

  async #score(head: ModelConfig["head"], batches: readonly MicroBatch[], temperature: number) {
    this.#expectHead(head);
    const scores: Record<string, Float32Array[]> = {};
    for (const batch of batches) {
      const { run, inputs: arrays, results } = await this.#scoreFunction(batch, temperature);
      writeBatch(arrays, batch);
      await run.run({ ...this.#parameterArrays, ...arrays }, results);
      for (const [name, array] of Object.entries(results)) {
        const laid = array.read() as Float32Array;
        const rows = scores[name] ?? [];
        scores[name] = rows;
        batch.members.forEach((member, row) => {
          rows[member] = laid.slice(row * batch.width, row * batch.width + batch.counts[row]!);
        });
      }
    }
    return scores;
  }

  #expectHead(head: ModelConfig["head"]): void {
    if (this.config.head !== head) throw new TypeError(`this network's head says ${this.config.head}, not ${head}`);
  }

  /** (B, W) of the network's head: what it says of each written token. */
  #scores(
    parameters: Readonly<Record<string, tf.Tensor>>,
    x: Readonly<Record<string, tf.Tensor>>,
    { temperature, rows, width }: Shape,
  ): Record<string, tf.Tensor> {
    const byRow = (values: tf.Tensor) => tf.reshape(values, [rows, width]);
    const states = tf.gather(hiddenStates(this.config, parameters, x["tokens"]!), x["picks"]!);
    if (this.config.head === "value") return { values: byRow(stateValues(parameters, states)) };
    const all = logits(this.config, parameters, states);
    const { logProbs, entropies } = tokenLogProbs(temperature === 1 ? all : tf.div(all, temperature), x["targets"]!);
    return { logProbs: byRow(logProbs), entropies: byRow(entropies) };
  }

  #gradientFunction(objective: Objective, batch: MicroBatch, temperature: number): Promise<Compiled> {
    this.#expectHead(objective.head);
    const names = [...parameterShapes(this.config).keys()];
    const { rows, width } = batch;
    const given: Record<string, Spec> = batchSpecs(batch);
    for (const name of objective.inputs) given[name] = f32(rows, width);
    const prefixed = Object.fromEntries(names.map((name) => [`gradient.${name}`, this.#parameterArrays[name]!]));
    return this.#compile(
      `${objective.name} ${shapeKey(batch, temperature)}`,
      given,
      { ...this.#parameterArrays, ...prefixed },
      (x) => {
        let metrics: Record<string, tf.Tensor> = {};
        const loss = (...values: tf.Tensor[]) => {
          const parameters = Object.fromEntries(names.map((name, i) => [name, values[i]!]));
          // The head was checked above, so the scores are those that the objective is for.
          const scores = this.#scores(parameters, x, { ...batch, temperature }) as never;
          const result = objective.loss(scores, x);
          metrics = Object.fromEntries(Object.entries(result.metrics).map(([name, value]) => [name, tf.keep(value)]));
          return result.loss;
        };
        const { value, grads } = tf.valueAndGrads(loss)(names.map((name) => x[name]!));
        const sums = names.map((name, i) => [`gradient.${name}`, tf.add(x[`gradient.${name}`]!, grads[i]!)]);
        return { loss: value, ...metrics, ...Object.fromEntries(sums) };
      },
    );
  }

  #scoreFunction(batch: MicroBatch, temperature: number): Promise<Compiled> {
    return this.#compile(`score ${shapeKey(batch, temperature)}`, batchSpecs(batch), this.#parameterArrays, (x) => ({
      ...this.#scores(x, x, { ...batch, temperature }),
    }));
  }

  /** `shared` are inputs that live with the network; outputs that are not among them get arrays of their own. */
  #compile(
    name: string,
    given: Readonly<Record<string, Spec>>,
    shared: Readonly<Record<string, Spec>>,
    build: (x: Readonly<Record<string, tf.Tensor>>) => Record<string, tf.Tensor>,
  ): Promise<Compiled> {
    const known = this.#compiled.get(name);
    const compiled = known ?? this.#compileOnce(name, given, shared, build);
    // The least recently used is first, and is the one to go.
    this.#compiled.delete(name);
    this.#compiled.set(name, compiled);
    if (this.#compiled.size > COMPILED_MAX) {
      const [oldest, unused] = this.#compiled.entries().next().value!;
      this.#compiled.delete(oldest);
      void unused.then(({ run }) => run.dispose());
    }
    return compiled;
  }

  async #compileOnce(
    name: string,
    given: Readonly<Record<string, Spec>>,
    shared: Readonly<Record<string, Spec>>,
    build: (x: Readonly<Record<string, tf.Tensor>>) => Record<string, tf.Tensor>,
  ): Promise<Compiled> {
    const run = await this.#engine.compile(name, build, { ...given, ...shared });
    const arrays = (specs: Iterable<[string, Spec]>) =>
      Object.fromEntries([...specs].map(([key, spec]) => [key, this.#engine.array(spec)]));
    const results = Object.entries(run.outputs).filter(([key]) => !(key in shared));
    return { run, inputs: arrays(Object.entries(given)), results: arrays(results) };
  }
}

type Shape = Pick<MicroBatch, "rows" | "width"> & { readonly temperature: number };

const shapeKey = ({ rows, length, width }: MicroBatch, temperature: number) =>
  `${rows}x${length}x${width}@${temperature}`;

const batchSpecs = ({ rows, length, width }: MicroBatch): Record<string, Spec> => ({
  tokens: i32(rows, length),
  picks: i32(rows * width),
  targets: i32(rows * width),
});

function writeBatch(arrays: Readonly<Record<string, DeviceArray>>, batch: MicroBatch): void {
  arrays["tokens"]!.write(batch.tokens);
  arrays["picks"]!.write(batch.picks);
  arrays["targets"]!.write(batch.targets);
}
