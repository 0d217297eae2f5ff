/**
 * The kernel of a Muon step on one matrix (learn/optimizer.ts has the definition). The gradient is the sum of G arrays. L is the larger number
 * of the matrix's rows and columns, S the smaller one.
 *
 * - x (L, S) is transposed if the matrix has more columns than rows. So each product of the iteration reads rows of memory only.
 * - An iteration multiplies x by p = a · I + b · gram + c · gram², with gram = xᵀ · x. The definition leaves a · I
 *   out of p, and adds a · x afterwards.
 * - p is a polynomial of gram, so p and gram commute. Then the next Gram matrix is p · gram · p, which needs no x. If L is at least 1.5 · S,
 *   the kernel multiplies the matrices p of up to three iterations, and then multiplies x by their product once.
 */
import { type Address, at } from "./assembler.ts";
import { blocksOf, checkMultiple, FLOAT_BYTES, KernelWriter } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { addUp, eachVectorAt, floatInputs, vectorOf } from "./optimizer.ts";
import { vectorProductOperator } from "./product.ts";
import { R8, RCX, RDI, RDX, RSI } from "./registers.ts";
import { symmetricProductOperator } from "./symmetric-product.ts";
import { BLOCK, transpose } from "./transpose.ts";

export interface MuonSettings {
  readonly momentum: number;
  /** Factor of a step, in units of the learning rate. */
  readonly stepSize: number;
  /** Number of iterations. */
  readonly steps: number;
  /** Coefficients of p. */
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

export interface MuonShape extends MuonSettings {
  /** A multiple of 16. */
  readonly rows: number;
  /** A multiple of 16. */
  readonly columns: number;
  /** G. */
  readonly gradients: number;
}

/** Indexes in the scalars of a step. */
const SCALARS = { clip: 0, decay: 2, epsilon: 6, learningRate: 7 } as const;

/** The address of a scalar. rsi holds the address of all scalars. */
const scalarAt = (name: keyof typeof SCALARS) => at(RSI, FLOAT_BYTES * SCALARS[name]);

/** A vector register that `transpose` does not overwrite. */
const FACTOR = 17;

/**
 * Maximum number of iterations for one product with x. In each iteration, an error of the Gram matrix grows by the factor a², which is 12.
 * With three iterations, a step differs from a step in float64 as much as the definition does. With five iterations it differs more than 100
 * times as much (measured with a gradient of rank 4 of 128).
 */
const ITERATIONS_MAX = 3;
/** The smallest ratio of L to S at which several iterations for one product with x are faster. */
const RATIO_MIN = 1.5;

/**
 * Inputs: parameters, momentum, the scalars of a step (`Optimizer.step`), G gradients. Outputs: parameters, momentum, G arrays of zeros; then
 * scratch. An output may have the memory of its input.
 */
export function muonOperator(shape: MuonShape): MachineCodeOperator {
  const { rows, columns, gradients } = shape;
  checkMultiple("number of rows", rows, BLOCK);
  checkMultiple("number of columns", columns, BLOCK);
  const [long, short] = [Math.max(rows, columns), Math.min(rows, columns)];
  return {
    inputs: floatInputs(3 + gradients),
    outputs: [
      ...Array.from({ length: 2 + gradients }, () => [rows, columns]),
      ...Array.from({ length: 2 }, () => [long, short]),
      ...Array.from({ length: 4 }, () => [short, short]),
    ],
    write: (kernel) => new Muon(kernel, shape).write(),
  };
}

/** The matrices of the scratch. (L, S): x, the next x. (S, S): gram, p, the product of the matrices p so far, the next product. */
const SCRATCH = ["x", "nextX", "gram", "p", "product", "nextProduct"] as const;

class Muon extends KernelWriter<MuonShape> {
  readonly #size = this.shape.rows * this.shape.columns;
  readonly #long = Math.max(this.shape.rows, this.shape.columns);
  readonly #short = Math.min(this.shape.rows, this.shape.columns);
  readonly #isWide = this.shape.rows < this.shape.columns;
  /** Variables with the addresses of the scratch's matrices. */
  readonly #scratch = Object.fromEntries(
    SCRATCH.map((name, i) => [name, this.kernel.outputs[2 + this.shape.gradients + i]!]),
  ) as Readonly<Record<(typeof SCRATCH)[number], Address>>;

  write(): void {
    const { code } = this;
    const { rows, columns, steps } = this.shape;
    this.#updateMomentum();
    if (this.#isWide) this.#transpose(rows, columns, (row, from) => code.vector("multiply", row, FACTOR, from));
    else this.#scale(this.#scratch.x, this.#scratch.x, this.#size);
    const atOnce = this.#long >= RATIO_MIN * this.#short ? ITERATIONS_MAX : 1;
    this.kernel.each(blocksOf(steps, atOnce), (iterations) => this.#iterate(iterations));
    if (this.#isWide) this.#transpose(columns, rows, (row, from) => code.loadVector(row, from));
    this.#moveParameters();
  }

  /**
   * Updates the momentum, sets the gradients to zero, and sets x to the gradient plus the momentum. x is not transposed yet.
   * FACTOR = 1 / (the Euclidean norm of x + epsilon).
   */
  #updateMomentum(): void {
    const { kernel } = this;
    const { code, inputs, outputs } = kernel;
    const [, momentIn, scalars, ...gradients] = inputs;
    const [, momentOut, ...others] = outputs;
    const [gradient, moment, ahead, squares, clip, momentum, zero, spare] = [0, 1, 2, 3, 4, 5, 6, 7];
    code.move(RSI, scalars!);
    code.broadcast(clip, scalarAt("clip"));
    kernel.broadcastNumber(momentum, this.shape.momentum);
    for (const register of [zero, squares]) code.zero(register);
    eachVectorAt(kernel, this.#size, () => {
      addUp(kernel, gradient, gradients);
      code.vector("multiply", gradient, gradient, clip);
      code.vector("multiply", moment, momentum, vectorOf(kernel, momentIn!));
      code.vector("add", moment, moment, gradient);
      code.vector("multiply", ahead, momentum, moment);
      code.vector("add", ahead, ahead, gradient);
      code.multiplyAdd(squares, ahead, ahead);
      code.storeVector(vectorOf(kernel, momentOut!), moment);
      for (const array of others.slice(0, gradients.length)) code.storeVector(vectorOf(kernel, array), zero);
      code.storeVector(vectorOf(kernel, this.#scratch.x), ahead);
    });
    code.reduce("add", squares, squares, spare);
    code.squareRoot(squares, squares);
    code.withNumber("add", squares, squares, scalarAt("epsilon"), spare);
    kernel.broadcastNumber(spare, 1);
    code.vector("divide", FACTOR, spare, squares);
  }

  /** Multiplies x by the product of the matrices p of some iterations. */
  #iterate(iterations: number): void {
    const { x, nextX, gram, p, product, nextProduct } = this.#scratch;
    const { kernel } = this;
    const [long, short] = [this.#long, this.#short];
    this.#multiplySymmetric(long, [x, x], gram);
    this.#setP();
    if (iterations > 1) {
      this.#copySquare(p, product);
      kernel.loop(iterations - 1, 1, () => {
        // The next Gram matrix is p · (gram · p).
        this.#multiplySymmetric(short, [gram, p], nextProduct);
        this.#multiplySymmetric(short, [p, nextProduct], gram);
        this.#setP();
        this.#multiplySymmetric(short, [product, p], nextProduct);
        kernel.swap(product, nextProduct);
      });
    }
    const { write } = vectorProductOperator({
      rows: long,
      depth: short,
      columns: short,
      transposeA: false,
      transposeB: false,
      addend: "none",
    });
    kernel.include(write, [x, iterations > 1 ? product : p], [nextX]);
    kernel.swap(x, nextX);
  }

  /** p = a · I + gram · (b · I + c · gram). Overwrites the next x. */
  #setP(): void {
    const { a, b, c } = this.shape;
    const { gram, p, nextX } = this.#scratch;
    this.kernel.broadcastNumber(FACTOR, c);
    this.#scale(gram, nextX, this.#short ** 2);
    this.#addToDiagonal(nextX, b);
    this.#multiplySymmetric(this.#short, [gram, nextX], p);
    this.#addToDiagonal(p, a);
  }

  /** `to` = Aᵀ · B, for A and B (depth, S). */
  #multiplySymmetric(depth: number, factors: readonly [Address, Address], to: Address): void {
    const { write } = symmetricProductOperator({ depth, columns: this.#short });
    this.kernel.include(write, factors, [to]);
  }

  #copySquare(from: Address, to: Address): void {
    const { code } = this;
    code.move(RSI, from);
    code.move(RDI, to);
    code.constant(RCX, FLOAT_BYTES * this.#short ** 2);
    code.copyBytes();
  }

  /** Adds a number to the diagonal of a matrix (S, S). */
  #addToDiagonal(matrix: Address, value: number): void {
    const { code } = this;
    const [sum, added] = [0, 1];
    this.kernel.broadcastNumber(added, value);
    code.move(RDX, matrix);
    this.kernel.countDown(RCX, this.#short, 1, () => {
      code.broadcast(sum, at(RDX));
      code.vector("add", sum, sum, added);
      code.storeFloat(at(RDX), sum);
      code.addConstant(RDX, FLOAT_BYTES * (this.#short + 1));
    });
  }

  /** `to` = `from` · FACTOR */
  #scale(from: Address, to: Address, size: number): void {
    const { kernel, code } = this;
    eachVectorAt(kernel, size, () => {
      code.vector("multiply", 0, FACTOR, vectorOf(kernel, from));
      code.storeVector(vectorOf(kernel, to), 0);
    });
  }

  /** Replaces x (rows, columns) by its transpose. @param loadRow  loads 16 numbers of x into a vector, and may change them */
  #transpose(rows: number, columns: number, loadRow: (vector: number, from: Address) => void): void {
    const { kernel, code } = this;
    const { x, nextX } = this.#scratch;
    const [fromBytes, toBytes] = [FLOAT_BYTES * columns, FLOAT_BYTES * rows];
    const [from, to] = [RSI, RDX];
    code.move(from, x);
    code.move(to, nextX);
    kernel.countDown(R8, rows, BLOCK, () => {
      kernel.countDown(RCX, columns, BLOCK, () => {
        transpose(code, (row) => loadRow(row, at(from, row * fromBytes)), { start: at(to), row: toBytes });
        code.addConstant(from, BLOCK * FLOAT_BYTES);
        code.addConstant(to, BLOCK * toBytes);
      });
      code.addConstant(from, (BLOCK - 1) * fromBytes);
      code.addConstant(to, BLOCK * FLOAT_BYTES - columns * toBytes);
    });
    kernel.swap(x, nextX);
  }

  /** parameters = parameters · decay - x · learning rate · step size */
  #moveParameters(): void {
    const { kernel } = this;
    const { code, inputs, outputs } = kernel;
    const [parameter, move, decay, rate, size] = [0, 1, 2, 3, 4];
    code.move(RSI, inputs[2]!);
    code.broadcast(decay, scalarAt("decay"));
    code.broadcast(rate, scalarAt("learningRate"));
    kernel.broadcastNumber(size, this.shape.stepSize);
    code.vector("multiply", rate, rate, size);
    eachVectorAt(kernel, this.#size, () => {
      code.vector("multiply", move, rate, vectorOf(kernel, this.#scratch.x));
      code.vector("multiply", parameter, decay, vectorOf(kernel, inputs[0]!));
      code.vector("subtract", parameter, parameter, move);
      code.storeVector(vectorOf(kernel, outputs[0]!), parameter);
    });
  }
}
