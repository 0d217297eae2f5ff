/** The kernel of causal self-attention over whole sequences (policy/attention.ts has the definition; attention-tiles.ts the letters). */
import { roundUp } from "../graph.ts";
import { type Address, at, atIndex, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP } from "./assembler.ts";
import { checkShape, KEY_PADDING, TILE, TileWriter, type WholeShape } from "./attention-tiles.ts";
import { FLOAT_BYTES, shifted } from "./kernel.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { HIDDEN_SCORE, INVERSE_SUM, LARGEST, softmax } from "./softmax.ts";

/** Inputs: qkv, cos, sin. Outputs: out; the largest score and 1 / the sum of exponentials of each query, (B, H, T, 2); scratch. */
export function attentionOperator(shape: WholeShape): MachineCodeOperator {
  const { rows, tokens, heads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: ["float32", "float32", "float32"],
    outputs: [
      [rows, tokens, heads * headWidth],
      [rows, heads, tokens, 2],
      [headWidth * (roundUp(tokens, KEY_PADDING) + tokens)],
    ],
    write: (kernel) => new AttentionWriter(kernel, shape).write(),
  };
}

class AttentionWriter extends TileWriter {
  /** Variables: addresses of the current head's part of the row's first token. */
  readonly #query = this.kernel.word();
  readonly #key = this.kernel.word();
  readonly #value = this.kernel.word();
  readonly #out = this.kernel.word();
  /** Variable: address of the current head's statistics, (T, 2). */
  readonly #statistics = this.kernel.word();
  /** Variables: addresses in the scratch, which holds the current head's rotated keys, transposed (D, P) and as rows (T, D). */
  readonly #keysTransposed = this.kernel.outputs[2]!;
  readonly #keys = this.kernel.word();
  /** The rotated queries of a tile, (4, D), and their scores, later weights, (4, P). */
  readonly #queries = this.kernel.memory(TILE * this.sizes.head);
  readonly #weights = this.kernel.memory(TILE * this.sizes.padded);

  write(): void {
    const { kernel, sizes } = this;
    const { rows, tokens, kvHeads, heads } = this.shape;
    const { head, token, outToken } = sizes;
    this.kernel.setToParts(kernel.inputs[0]!, this.shape, [this.#query, this.#key, this.#value]);
    kernel.set(this.#out, kernel.outputs[0]!);
    kernel.set(this.#statistics, kernel.outputs[1]!);
    kernel.set(this.#keys, this.#keysTransposed);
    kernel.advance(this.#keys, this.shape.headWidth * sizes.padded);
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        this.#transposeKeys();
        kernel.loop(heads / kvHeads, 1, () => {
          kernel.loop(tokens, TILE, (position) => {
            this.#rotateQueries(position);
            this.#score(position);
            this.#softmaxes(position);
            this.#mix(position);
          });
          kernel.advance(this.#query, head);
          kernel.advance(this.#out, head);
          kernel.advance(this.#statistics, 2 * FLOAT_BYTES * tokens);
        });
        kernel.advance(this.#key, head);
        kernel.advance(this.#value, head);
      });
      kernel.advance(this.#query, tokens * token - heads * head);
      kernel.advance(this.#out, (tokens - 1) * outToken);
      kernel.advance(this.#key, tokens * token - kvHeads * head);
      kernel.advance(this.#value, tokens * token - kvHeads * head);
    });
  }

  #transposeKeys(): void {
    const { kernel, sizes } = this;
    kernel.loop(this.shape.tokens, 1, (t) => {
      this.locate(RAX, this.#key, t, sizes.token);
      this.setAngles(t);
      this.locate(RDX, this.#keys, t, sizes.head);
      kernel.rotate(at(RDX), this.shape.headWidth);
    });
    this.transpose(this.#keys, sizes.head, this.#keysTransposed);
  }

  #rotateQueries(position: Address): void {
    const { headWidth, scale } = this.shape;
    const { head, token } = this.sizes;
    for (let row = 0; row < TILE; row++) {
      this.locate(RAX, this.#query, position, token, row * token);
      this.setAngles(position, row);
      this.kernel.rotate(shifted(this.#queries, row * head), headWidth, { scale });
    }
  }

  /** The scores of the tile's queries. Sets r10 to the number of scores of one query. */
  #score(position: Address): void {
    const { code, sizes } = this;
    this.setKeyEnd(position);
    this.eachKeyTile((vectors) => {
      this.zeroSums(vectors);
      code.addressOf(RDI, this.#queries);
      this.addKeyScores(vectors, { register: RDI, row: sizes.head, step: FLOAT_BYTES }, this.#keysTransposed);
      this.eachSum(vectors, (row, vector, sum) => {
        const offset = this.#weights.offset + row * sizes.padded + vector * sizes.vector;
        code.storeVector(atIndex(RSP, R11, FLOAT_BYTES, offset), sum);
      });
    });
    this.hide(position, this.#weights, HIDDEN_SCORE);
  }

  /** Replaces the scores of each query by e^(score - largest), and stores the largest and 1 / the sum. r10 is the number of scores. */
  #softmaxes(position: Address): void {
    const { code } = this;
    this.locate(RDX, this.#statistics, position, 2 * FLOAT_BYTES);
    for (let row = 0; row < TILE; row++) {
      const scores = shifted(this.#weights, row * this.sizes.padded);
      softmax(this.kernel, scores, (body) => this.#eachVector(scores, body));
      code.storeFloat(at(RDX, row * 2 * FLOAT_BYTES), LARGEST);
      code.storeFloat(at(RDX, row * 2 * FLOAT_BYTES + FLOAT_BYTES), INVERSE_SUM);
    }
  }

  /** Runs `body` for each vector of a query's scores. r10 is the number of scores. Overwrites rcx and rsi. */
  #eachVector(scores: Address, body: (vector: Address) => void): void {
    const { code } = this;
    code.addressOf(RSI, scores);
    code.move(RCX, R10);
    const again = code.label();
    code.place(again);
    body(at(RSI));
    code.addConstant(RSI, this.sizes.vector);
    code.addConstant(RCX, -code.vectorWidth);
    code.jumpIf("more", again);
  }

  /** Writes the results of the tile's queries: the weighted sums of the values. */
  #mix(position: Address): void {
    const { code, sizes } = this;
    const { token, outToken } = sizes;
    for (const { from, vectors } of this.headParts()) {
      this.zeroSums(vectors);
      code.addressOf(RDI, this.#weights);
      this.addKeyRows(vectors, position, this.#value, from, token);
      this.locate(RSI, this.#out, position, outToken);
      this.locate(RDX, this.#statistics, position, 2 * FLOAT_BYTES);
      const inverseSum = TILE * vectors;
      this.eachSum(vectors, (row, vector, sum) => {
        if (vector === 0) code.broadcast(inverseSum, at(RDX, row * 2 * FLOAT_BYTES + FLOAT_BYTES));
        code.vector("multiply", sum, sum, inverseSum);
        code.storeVector(at(RSI, row * outToken + FLOAT_BYTES * from + vector * sizes.vector), sum);
      });
    }
  }
}
