/**
 * AdamW with global-norm clipping over all parameters as one vector.
 * Source: https://arxiv.org/abs/1711.05101 (decoupled weight decay); bias correction as torch.optim.AdamW.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type CompiledFunction, type DeviceArray, type Engine, f32, type Job } from "../engine/engine.ts";

export interface AdamWSettings {
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  /** A step multiplies every parameter by `1 - learningRate * weightDecay`. */
  readonly weightDecay: number;
  /** Gradients of a larger Euclidean norm are scaled down to this. */
  readonly clipNorm: number;
}

/** State of the optimizer; the arrays are as long as the parameters. */
export interface AdamWState {
  readonly moment: Float32Array;
  readonly variance: Float32Array;
  /** Steps taken. */
  step: number;
}

export interface OptimizerResult {
  /** Norm of the gradient before clipping. */
  readonly gradientNorm: number;
  /** False if the norm is not finite; then nothing changed. */
  readonly applied: boolean;
}

/** Scalars of one step, in the order they are packed: clip scale, step size, decay, beta1, beta2, 1 / sqrt(correction2), epsilon. */
const SCALARS = 7;

/** A piece costs a dozen small objects. */
const PIECES_MAX = 1024;

/** Graph names of the lanes' gradients. */
const gradientName = (index: number) => `gradient.${index}`;

interface Memory {
  readonly parameters: Float32Array;
  /** The gradient is the sum of these. */
  readonly gradients: readonly Float32Array[];
  readonly state: AdamWState;
}

export class AdamW {
  readonly state: AdamWState;
  readonly #engine: Engine;
  readonly #gradients: readonly Float32Array[];
  readonly #scalars: DeviceArray;
  /** Sum of the gradient's squares, by piece. */
  readonly #squares: Float32Array;
  /** Jobs by lane, one for each piece. */
  readonly #norms: readonly (readonly Job[])[];
  readonly #steps: readonly (readonly Job[])[];

  private constructor(
    engine: Engine,
    { parameters, gradients, state }: Memory,
    functions: ReadonlyMap<number, Functions>,
  ) {
    this.state = state;
    this.#engine = engine;
    this.#gradients = gradients;
    this.#scalars = engine.array(f32(SCALARS));
    const pieces = piecesOf(parameters.length, engine);
    this.#squares = new Float32Array(pieces.length);
    const jobs = pieces.map(({ start, size }, index) => {
      const { norm, step } = functions.get(size)!;
      const piece = (values: Float32Array) => engine.array(f32(size), values.subarray(start, start + size));
      const ofGradients = Object.fromEntries(gradients.map((values, i) => [gradientName(i), piece(values)]));
      const changed = {
        parameters: piece(parameters),
        moment: piece(state.moment),
        variance: piece(state.variance),
        ...ofGradients,
      };
      const squares = engine.array(f32(), this.#squares.subarray(index, index + 1));
      return {
        norm: { run: norm, inputs: ofGradients, outputs: { squares } },
        step: { run: step, inputs: { ...changed, scalars: this.#scalars }, outputs: changed },
      };
    });
    const perLane = Math.ceil(jobs.length / engine.lanes);
    const lanes = Array.from({ length: engine.lanes }, (_, lane) => jobs.slice(lane * perLane, (lane + 1) * perLane));
    this.#norms = lanes.map((list) => list.map(({ norm }) => norm));
    this.#steps = lanes.map((list) => list.map(({ step }) => step));
  }

  /**
   * Keeps all arrays and works in place: `step` changes `parameters` and sets the gradients to zero.
   *
   * @param gradients  the gradient is the sum of these, each as long as the parameters.
   */
  static async create(
    engine: Engine,
    parameters: Float32Array,
    gradients: readonly Float32Array[],
    state?: AdamWState,
  ): Promise<AdamW> {
    const { length } = parameters;
    const fresh = { moment: new Float32Array(length), variance: new Float32Array(length), step: 0 };
    const functions = new Map<number, Functions>();
    for (const { size } of piecesOf(length, engine)) {
      if (functions.has(size)) continue;
      const piece = f32(size);
      const ofGradients = Object.fromEntries(gradients.map((_, index) => [gradientName(index), piece]));
      const changed = { parameters: piece, moment: piece, variance: piece };
      functions.set(size, {
        norm: await engine.compile("gradient norm", squares, ofGradients, true),
        step: await engine.compile("AdamW", adamW, { ...changed, ...ofGradients, scalars: f32(SCALARS) }, true),
      });
    }
    return new AdamW(engine, { parameters, gradients, state: state ?? fresh }, functions);
  }

  /** Euclidean norm of the gradient. */
  async norm(): Promise<number> {
    await this.#engine.runLanes(this.#norms);
    this.#engine.toHost(this.#squares);
    return Math.sqrt(this.#squares.reduce((sum, squares) => sum + squares, 0));
  }

  clearGradients(): void {
    for (const values of this.#gradients) {
      values.fill(0);
      this.#engine.toDevice(values);
    }
  }

  /** Takes a step in place and sets the gradients to zero. A gradient that is not finite changes nothing else. */
  async step(settings: AdamWSettings): Promise<OptimizerResult> {
    const gradientNorm = await this.norm();
    if (!Number.isFinite(gradientNorm)) {
      this.clearGradients();
      return { gradientNorm, applied: false };
    }
    this.state.step++;
    const { learningRate, beta1, beta2, epsilon, weightDecay, clipNorm } = settings;
    const correction1 = 1 - beta1 ** this.state.step;
    const correction2 = 1 - beta2 ** this.state.step;
    this.#scalars.write(
      Float32Array.of(
        // The 1e-6 is torch.nn.utils.clip_grad_norm_'s.
        Math.min(1, clipNorm / (gradientNorm + 1e-6)),
        learningRate / correction1,
        1 - learningRate * weightDecay,
        beta1,
        beta2,
        1 / Math.sqrt(correction2),
        epsilon,
      ),
    );
    await this.#engine.runLanes(this.#steps);
    return { gradientNorm, applied: true };
  }
}

/** Compiled for pieces of one size. */
interface Functions {
  readonly norm: CompiledFunction;
  readonly step: CompiledFunction;
}

function piecesOf(length: number, { pieceValues }: Engine): { start: number; size: number }[] {
  const most = Math.max(pieceValues, Math.ceil(length / PIECES_MAX));
  return Array.from({ length: Math.ceil(length / most) }, (_, i) => ({
    start: i * most,
    size: Math.min(most, length - i * most),
  }));
}

type Tensors = Readonly<Record<string, tf.Tensor>>;

const gradientsOf = (inputs: Tensors) => Object.entries(inputs).filter(([name]) => name.startsWith("gradient."));
const sumOf = (gradients: ReturnType<typeof gradientsOf>) =>
  gradients.map(([, tensor]) => tensor).reduce((sum, tensor) => tf.add(sum, tensor));

function squares(inputs: Tensors): Record<string, tf.Tensor> {
  return { squares: tf.sum(tf.square(sumOf(gradientsOf(inputs)))) };
}

function adamW(inputs: Tensors): Record<string, tf.Tensor> {
  const { parameters, moment, variance, scalars } = inputs;
  const gradients = gradientsOf(inputs);
  const sum = sumOf(gradients);
  const scalar = (index: number) => tf.reshape(tf.slice(scalars!, [index], [1]), []);
  const [clip, stepSize, decay, beta1, beta2, inverseRoot, epsilon] = Array.from({ length: SCALARS }, (_, i) =>
    scalar(i),
  );
  const gradient = tf.mul(sum, clip!);
  const nextMoment = tf.add(tf.mul(moment!, beta1!), tf.mul(gradient, tf.sub(1, beta1!)));
  const nextVariance = tf.add(tf.mul(variance!, beta2!), tf.mul(tf.square(gradient), tf.sub(1, beta2!)));
  const scale = tf.add(tf.mul(tf.sqrt(nextVariance), inverseRoot!), epsilon!);
  const move = tf.mul(tf.div(nextMoment, scale), stepSize!);
  // It overwrites the gradients in place, so it must depend on all nodes that read them; a constant 0 could be written first.
  const zero = tf.sub(move, move);
  return {
    parameters: tf.sub(tf.mul(parameters!, decay!), move),
    moment: nextMoment,
    variance: nextVariance,
    ...Object.fromEntries(gradients.map(([name]) => [name, zero])),
  };
}
