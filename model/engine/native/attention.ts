/** The kernel of causal self-attention over a prefix tree (policy/attention.ts has the definition, attention-tiles.ts explains the letters). */
import { at, atIndex } from "./assembler.ts";
import { checkShape, STATISTICS_BYTES, TILE, TileWriter, type TreeShape } from "./attention-tiles.ts";
import { FLOAT_BYTES, shifted } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { R11, RAX, RDI, RDX, RSI, RSP } from "./registers.ts";
import { HIDDEN_SCORE, INVERSE_SUM, LARGEST, softmax } from "./softmax.ts";

/** Inputs: qkv, branches, cos, sin, isRead. Outputs: out; each query's largest score and 1 / its sum of exponentials, (H, N, 2); scratch. */
export function attentionOperator(shape: TreeShape): MachineCodeOperator {
  const { tokens, length, heads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: ["float32", "int32", "float32", "float32", "int32"],
    outputs: [[tokens, heads * headWidth], [heads, tokens, 2], [3 * length * headWidth]],
    write: (kernel) => new AttentionWriter(kernel, shape).write(),
  };
}

class AttentionWriter extends TileWriter {
  readonly #query = this.tokenTensor(this.sizes.token);
  readonly #key = this.tokenTensor(this.sizes.token);
  readonly #value = this.tokenTensor(this.sizes.token);
  readonly #out = this.tokenTensor(this.sizes.outToken);
  readonly #statistic = this.tokenTensor(STATISTICS_BYTES);
  /** Variables: addresses in the scratch, which holds the current path's rotated keys, transposed (D, T) and as rows (T, D), and its values (T, D). */
  readonly #keysTransposed = this.kernel.outputs[2]!;
  readonly #pathKeys = this.kernel.word();
  readonly #pathValues = this.kernel.word();
  /** The rotated queries of a tile, (4, D), and their scores, (4, T), which the weights later replace. */
  readonly #rotated = this.kernel.memory(TILE * this.sizes.head);
  readonly #weights = this.kernel.memory(TILE * this.sizes.path);

  write(): void {
    const { kernel } = this;
    const { tokens, length, kvHeads, heads } = this.shape;
    const { head } = this.sizes;
    const group = heads / kvHeads;
    kernel.setToParts(kernel.inputs[0]!, this.shape, [this.#query.first, this.#key.first, this.#value.first]);
    kernel.set(this.#out.first, kernel.outputs[0]!);
    kernel.set(this.#statistic.first, kernel.outputs[1]!);
    kernel.set(this.#pathKeys, this.#keysTransposed);
    kernel.advance(this.#pathKeys, length * head);
    kernel.set(this.#pathValues, this.#pathKeys);
    kernel.advance(this.#pathValues, length * head);
    kernel.loop(kvHeads, 1, () => {
      this.eachBranch(() => {
        this.setToBranch([this.#query, this.#key, this.#value, this.#out, this.#statistic]);
        this.#prepareKeys();
        kernel.loop(group, 1, () => {
          this.eachPosition(TILE, () => {
            this.ifRead(() => {
              this.#rotateQueries();
              this.#score();
              this.#softmaxes();
              this.#mix();
            });
          });
          for (const { inBranch } of [this.#query, this.#out]) kernel.advance(inBranch, head);
          kernel.advance(this.#statistic.inBranch, STATISTICS_BYTES * tokens);
        });
      });
      for (const { first } of [this.#query, this.#out]) kernel.advance(first, group * head);
      for (const { first } of [this.#key, this.#value]) kernel.advance(first, head);
      kernel.advance(this.#statistic.first, group * STATISTICS_BYTES * tokens);
    });
  }

  /** Adds the branch's keys and values to those of the path. */
  #prepareKeys(): void {
    this.eachPosition(1, () => this.addToPath(this.#key, this.#value, this.#pathKeys, this.#pathValues));
    this.transpose(this.#pathKeys, this.#keysTransposed);
  }

  #rotateQueries(): void {
    const { headWidth, scale } = this.shape;
    for (let row = 0; row < TILE; row++) {
      this.locateToken(RAX, this.#query, row);
      this.setAngles(row);
      this.kernel.rotate(shifted(this.#rotated, row * this.sizes.head), headWidth, { scale });
    }
  }

  /** The scores of the tile's queries. Sets r10 to the number of scores of one query. */
  #score(): void {
    const { code, sizes } = this;
    this.setKeyEnd();
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      code.addressOf(RDI, this.#rotated);
      this.addKeyScores(vectors, { register: RDI, row: sizes.head, step: FLOAT_BYTES }, this.#keysTransposed);
      this.eachSum(vectors, (row, vector, sum) => {
        const offset = this.#weights.offset + row * sizes.path + vector * sizes.vector;
        code.storeVector(atIndex(RSP, R11, FLOAT_BYTES, offset), sum);
      });
    });
    this.hide(this.#weights, HIDDEN_SCORE);
  }

  /** Replaces the scores of each query by e^(score - largest), and stores the largest and 1 / the sum. r10 is the number of scores. */
  #softmaxes(): void {
    const { code } = this;
    this.locateToken(RDX, this.#statistic);
    for (let row = 0; row < TILE; row++) {
      const scores = shifted(this.#weights, row * this.sizes.path);
      softmax(this.kernel, scores, code.vectorWidth, 1);
      code.storeFloat(at(RDX, row * STATISTICS_BYTES), LARGEST);
      code.storeFloat(at(RDX, row * STATISTICS_BYTES + FLOAT_BYTES), INVERSE_SUM);
    }
  }

  /** Writes the results of the tile's queries: the weighted sums of the values. */
  #mix(): void {
    const { code, sizes } = this;
    const { outToken } = sizes;
    for (const { from, vectors } of this.headParts()) {
      this.zeroSums(vectors);
      code.addressOf(RDI, this.#weights);
      this.addKeyRows(vectors, this.#pathValues, from);
      this.locateToken(RSI, this.#out);
      this.locateToken(RDX, this.#statistic);
      const inverseSum = TILE * vectors;
      this.eachSum(vectors, (row, vector, sum) => {
        if (vector === 0) code.broadcast(inverseSum, at(RDX, row * STATISTICS_BYTES + FLOAT_BYTES));
        code.vector("multiply", sum, sum, inverseSum);
        code.storeVector(at(RSI, row * outToken + FLOAT_BYTES * from + vector * sizes.vector), sum);
      });
    }
  }
}
