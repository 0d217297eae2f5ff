/**
 * AdamW or Muon, with clipping by the global norm of the gradient. Muon updates only the matrices of the layers. AdamW then updates the
 * other parameters (embeddings, output layer, norms, biases).
 *
 * Source: AdamW https://arxiv.org/abs/1711.05101, bias correction as torch.optim.AdamW. Muon https://kellerjordan.github.io/posts/muon/
 * (Nesterov momentum, quintic Newton-Schulz iteration). Muon's steps are scaled to the size of AdamW's steps as in
 * https://arxiv.org/abs/2502.16982, section 2.2.
 */
import * as tf from "@tensorflow/tfjs-core";
import {
  type CompiledFunction,
  type DeviceArray,
  type Engine,
  f32,
  type Job,
  type TensorFunction,
} from "../engine/engine.ts";
import { sizeOf } from "../engine/graph.ts";
import { fused, gradientProduct, kernelOfRows } from "../policy/ops.ts";

export type OptimizerName = "adamw" | "muon";

export interface OptimizerSettings {
  readonly learningRate: number;
  /** Decay rates of AdamW's moments. Muon's momentum is constant. */
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  /** A step multiplies every parameter by `1 - learningRate * weightDecay`. */
  readonly weightDecay: number;
  /** Maximum Euclidean norm of the gradient. A step scales a larger gradient down to this norm. */
  readonly clipNorm: number;
}

/** State of the optimizer; the arrays are as long as the parameters. */
export interface OptimizerState {
  /** AdamW's first moment; for a matrix that Muon updates, Muon's momentum. */
  readonly moment: Float32Array;
  /** AdamW's second moment; AdamW alone reads it. */
  readonly variance: Float32Array;
  step: number;
}

export interface OptimizerResult {
  /** Norm of the gradient before clipping. */
  readonly gradientNorm: number;
  /** False if the norm is not finite. Then the step only sets the gradients to zero. */
  readonly applied: boolean;
}

/** A matrix that Muon updates: [rows, columns] of the flat parameters from `start` on. */
export interface Matrix {
  readonly start: number;
  readonly shape: readonly [number, number];
}

const freshState = (length: number): OptimizerState => ({
  moment: new Float32Array(length),
  variance: new Float32Array(length),
  step: 0,
});

/** Number of scalars of one step, packed in this order: clip, step size, decay, beta1, beta2, 1 / sqrt(correction2), epsilon, learning rate. */
const SCALARS = 8;

const MUON_MOMENTUM = 0.95;
/** Coefficients of the iteration that brings all singular values near 1. */
const NEWTON_SCHULZ = { steps: 5, a: 3.4445, b: -4.775, c: 2.0315 };
/** Root mean square of AdamW's usual steps, in units of the learning rate. */
const ADAMW_STEP = 0.2;

/** Jobs take different times. With several lists for each lane, a lane that becomes free finds a list that no other lane works on. */
const LISTS_PER_LANE = 4;

/** Maximum number of pieces of a region, because each piece needs about twelve small objects. */
const PIECES_MAX = 1024;

/** The name of a gradient array in the graphs. */
const gradientName = (index: number) => `gradient.${index}`;

interface OptimizerParts {
  readonly state: OptimizerState;
  /** The gradient is the sum of these arrays. */
  readonly gradients: readonly Float32Array[];
  readonly scalars: DeviceArray;
  /** For each piece, the sum of the squares of the gradient's values. */
  readonly squares: Float32Array;
  /** Lists of jobs, one job for each piece. Lanes share the lists. */
  readonly norms: readonly (readonly Job[])[];
  readonly steps: readonly (readonly Job[])[];
}

export class Optimizer {
  readonly #engine: Engine;
  readonly #parts: OptimizerParts;

  private constructor(engine: Engine, parts: OptimizerParts) {
    this.#engine = engine;
    this.#parts = parts;
  }

  get state(): OptimizerState {
    return this.#parts.state;
  }

  /**
   * The optimizer keeps all given arrays and works in place: `step` changes `parameters` and sets the gradients to zero.
   *
   * @param gradients  the gradient is the sum of these arrays, each as long as the parameters.
   * @param matrices   the matrices that Muon updates; AdamW updates all other parameters.
   */
  static async create(
    engine: Engine,
    parameters: Float32Array,
    gradients: readonly Float32Array[],
    state: OptimizerState = freshState(parameters.length),
    matrices: readonly Matrix[] = [],
  ): Promise<Optimizer> {
    const { moment, variance } = state;
    const scalars = engine.array(f32(SCALARS));
    const compiled = new Map<string, Promise<CompiledFunction>>();
    /** A job on one part of these vectors and of the gradients. Without `outputs` it writes to all that it reads. */
    async function jobOn(
      { start, shape }: Part,
      name: string,
      build: TensorFunction,
      vectors: Readonly<Record<string, Float32Array>>,
      outputs?: Job["outputs"],
    ): Promise<Job> {
      const named = [...Object.entries(vectors), ...gradients.map((values, i) => [gradientName(i), values] as const)];
      const spec = f32(...shape);
      const inputs = Object.fromEntries(named.map(([key]) => [key, spec]));
      const run = await compiled.getOrInsertComputed(`${name} ${shape}`, () =>
        engine.compile(name, build, { ...inputs, scalars: f32(SCALARS) }, { inLane: true }),
      );
      const part = (values: Float32Array) => engine.array(spec, values.subarray(start, start + sizeOf(shape)));
      const arrays = Object.fromEntries(named.map(([key, values]) => [key, part(values)]));
      return { run, inputs: { ...arrays, scalars }, outputs: outputs ?? arrays };
    }
    const whole = piecesOf([{ start: 0, size: parameters.length }], engine);
    const squares = new Float32Array(whole.length);
    const norms = whole.map((piece, i) => {
      const outputs = { squares: engine.array(f32(1), squares.subarray(i, i + 1)) };
      return jobOn(piece, "gradient norm", sumOfSquares, {}, outputs);
    });
    const steps = [
      ...piecesOf(between(matrices, parameters.length), engine).map((piece) =>
        jobOn(piece, "AdamW", adamW, { parameters, moment, variance }),
      ),
      ...matrices.map((matrix) => jobOn(matrix, "Muon", muon(matrix.shape), { parameters, moment })),
    ];
    const [normJobs, stepJobs] = await Promise.all([Promise.all(norms), Promise.all(steps)]);
    const lists = engine.lanesMax * LISTS_PER_LANE;
    return new Optimizer(engine, {
      state,
      gradients,
      scalars,
      squares,
      norms: spread(normJobs, lists),
      steps: spread(stepJobs, lists),
    });
  }

  /** Euclidean norm of the gradient. */
  async norm(): Promise<number> {
    const { norms, squares } = this.#parts;
    await this.#engine.runLanes(norms);
    this.#engine.toHost(squares);
    return Math.sqrt(squares.reduce((sum, one) => sum + one, 0));
  }

  clearGradients(): void {
    for (const values of this.#parts.gradients) {
      values.fill(0);
      this.#engine.toDevice(values);
    }
  }

  /** Takes a step in place and sets the gradients to zero. If the gradient is not finite, nothing else changes. */
  async step(settings: OptimizerSettings): Promise<OptimizerResult> {
    const gradientNorm = await this.norm();
    if (!Number.isFinite(gradientNorm)) {
      this.clearGradients();
      return { gradientNorm, applied: false };
    }
    this.state.step++;
    const { learningRate, beta1, beta2, epsilon, weightDecay, clipNorm } = settings;
    const correction1 = 1 - beta1 ** this.state.step;
    const correction2 = 1 - beta2 ** this.state.step;
    this.#parts.scalars.write(
      Float32Array.of(
        // torch.nn.utils.clip_grad_norm_ adds the same 1e-6.
        Math.min(1, clipNorm / (gradientNorm + 1e-6)),
        learningRate / correction1,
        1 - learningRate * weightDecay,
        beta1,
        beta2,
        1 / Math.sqrt(correction2),
        epsilon,
        learningRate,
      ),
    );
    await this.#engine.runLanes(this.#parts.steps);
    return { gradientNorm, applied: true };
  }
}

/** A part of the flat vectors. */
interface Part {
  readonly start: number;
  readonly shape: readonly number[];
}

interface Region {
  readonly start: number;
  readonly size: number;
}

function piecesOf(regions: readonly Region[], { valuesPerPiece }: Engine): Part[] {
  return regions.flatMap(({ start, size }) => {
    const pieceSize = Math.max(valuesPerPiece, Math.ceil(size / PIECES_MAX));
    return Array.from({ length: Math.ceil(size / pieceSize) }, (_, i) => ({
      start: start + i * pieceSize,
      shape: [Math.min(pieceSize, size - i * pieceSize)],
    }));
  });
}

/** The regions of the flat vector that are in none of these matrices. */
function between(matrices: readonly Matrix[], length: number): Region[] {
  const starts = [0, ...matrices.map(({ start, shape }) => start + sizeOf(shape))];
  const ends = [...matrices.map(({ start }) => start), length];
  return starts.map((start, i) => ({ start, size: ends[i]! - start })).filter(({ size }) => size > 0);
}

function spread(jobs: readonly Job[], lists: number): Job[][] {
  return Array.from({ length: lists }, (_, list) => jobs.filter((_, i) => i % lists === list));
}

type Tensors = Readonly<Record<string, tf.Tensor>>;

const gradientsOf = (inputs: Tensors) => Object.entries(inputs).filter(([name]) => name.startsWith("gradient."));
const sumOf = (gradients: ReturnType<typeof gradientsOf>) =>
  gradients.map(([, tensor]) => tensor).reduce((sum, tensor) => tf.add(sum, tensor));

/** The sum of the squares of the gradient's values, (1). */
function sumOfSquares(inputs: Tensors): Record<string, tf.Tensor> {
  const gradients = gradientsOf(inputs);
  const kernel = kernelOfRows("GradientSquares", gradients[0]![1]);
  const [result] = fused(kernel, Object.fromEntries(gradients), {}, () => [
    tf.sum(tf.square(sumOf(gradients)), 0, true),
  ]);
  return { squares: result! };
}

/** The packed scalars, each a tensor without dimensions. */
function unpack(scalars: tf.Tensor): tf.Tensor[] {
  return Array.from({ length: SCALARS }, (_, index) => tf.reshape(tf.slice(scalars, [index], [1]), []));
}

/** A zero for each gradient array. The graph computes the zeros after `move`, the step. */
function cleared(gradients: readonly unknown[], move: tf.Tensor): tf.Tensor[] {
  // This zero overwrites the gradients in place, so it must depend on all nodes that read them. The engine could write a constant too early.
  const zero = tf.sub(move, move);
  return gradients.map(() => zero);
}

const namedGradients = (tensors: readonly tf.Tensor[]) =>
  Object.fromEntries(tensors.map((tensor, index) => [gradientName(index), tensor]));

function adamW(inputs: Tensors): Record<string, tf.Tensor> {
  const { parameters, moment, variance, scalars } = inputs;
  const gradients = gradientsOf(inputs);
  const kernel = kernelOfRows("AdamW", parameters!);
  const [nextParameters, nextMoment, nextVariance, ...zeros] = fused(kernel, inputs, {}, () => {
    const [clip, stepSize, decay, beta1, beta2, inverseRoot, epsilon] = unpack(scalars!);
    const gradient = tf.mul(sumOf(gradients), clip!);
    const nextMoment = tf.add(tf.mul(moment!, beta1!), tf.mul(gradient, tf.sub(1, beta1!)));
    const nextVariance = tf.add(tf.mul(variance!, beta2!), tf.mul(tf.square(gradient), tf.sub(1, beta2!)));
    const scale = tf.add(tf.mul(tf.sqrt(nextVariance), inverseRoot!), epsilon!);
    const move = tf.mul(tf.div(nextMoment, scale), stepSize!);
    const nextParameters = tf.sub(tf.mul(parameters!, decay!), move);
    return [nextParameters, nextMoment, nextVariance, ...cleared(gradients, move)];
  });
  return {
    parameters: nextParameters!,
    moment: nextMoment!,
    variance: nextVariance!,
    ...namedGradients(zeros),
  };
}

/** Updates a matrix by its Nesterov momentum. The iteration first brings all singular values of the momentum near 1. */
function muon([rows, columns]: Matrix["shape"]): TensorFunction {
  const stepSize = ADAMW_STEP * Math.sqrt(Math.max(rows, columns));
  return (inputs) => {
    const attributes = { ...NEWTON_SCHULZ, momentum: MUON_MOMENTUM, stepSize };
    const [nextParameters, nextMoment, ...zeros] = fused("Muon", inputs, attributes, () => {
      const { parameters, moment, scalars } = inputs;
      const [clip, , decay, , , , epsilon, learningRate] = unpack(scalars!);
      const gradients = gradientsOf(inputs);
      const gradient = tf.mul(sumOf(gradients), clip!);
      const nextMoment = tf.add(tf.mul(moment!, MUON_MOMENTUM), gradient);
      const ahead = tf.add(gradient, tf.mul(nextMoment, MUON_MOMENTUM));
      const start = tf.div(ahead, tf.add(tf.sqrt(tf.sum(tf.square(ahead))), epsilon!));
      const move = tf.mul(newtonSchulz(start), tf.mul(learningRate!, stepSize));
      return [tf.sub(tf.mul(parameters!, decay!), move), nextMoment, ...cleared(gradients, move)];
    });
    return { parameters: nextParameters!, moment: nextMoment!, ...namedGradients(zeros) };
  };
}

/** Brings all singular values of a matrix near 1. @param start  its Euclidean norm is at most 1 */
function newtonSchulz(start: tf.Tensor): tf.Tensor {
  const { steps, a, b, c } = NEWTON_SCHULZ;
  const [rows, columns] = start.shape as [number, number];
  // The smaller Gram matrix: rows by rows, or columns by columns.
  const wide = rows <= columns;
  let x = start;
  for (let i = 0; i < steps; i++) {
    const gram = gradientProduct(x, x, !wide, wide);
    const polynomial = tf.add(tf.mul(gram, b), tf.mul(gradientProduct(gram, gram), c));
    x = tf.add(tf.mul(x, a), wide ? gradientProduct(polynomial, x) : gradientProduct(x, polynomial));
  }
  return x;
}
