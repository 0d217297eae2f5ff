/** The kernel of causal self-attention over whole sequences (policy/attention.ts has the definition; attention-tiles.ts the letters). */
import { roundUp } from "../graph.ts";
import { type Address, at, atIndex, R8, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP } from "./assembler.ts";
import { AttentionKernel, checkShape, KEYS, TILE, type WholeShape } from "./attention-tiles.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { FLOAT } from "./kernel.ts";
import type { MachineOperator } from "./operator.ts";

/** Score of a token that the query does not see. */
const HIDDEN = -1e30;

/** Inputs: qkv, cos, sin. Outputs: out; the largest score and 1 / the sum of exponentials of each query, (B, H, T, 2); scratch. */
export function attentionOperator(shape: WholeShape): MachineOperator {
  const { rows, tokens, heads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: ["float32", "float32", "float32"],
    outputs: [[rows, tokens, heads * headWidth], [rows, heads, tokens, 2], [headWidth * roundUp(tokens, KEYS)]],
    write: (kernel) => new Forward(kernel, shape).write(),
  };
}

class Forward extends AttentionKernel {
  write(): void {
    const { kernel, code, shape, sizes } = this;
    const { rows, tokens, kvHeads, heads, headWidth } = shape;
    const { head, token, outToken, padded, group } = sizes;
    const [query, key, value, out, statistics] = Array.from({ length: 5 }, () => kernel.word()) as Address[];
    const transposed = kernel.outputs[2]!;
    const rotated = at(RSP, kernel.memory(head));
    const queries = at(RSP, kernel.memory(TILE * head));
    const weights = at(RSP, kernel.memory(TILE * padded));
    kernel.set(query!, kernel.inputs[0]!);
    for (const [part, start] of [
      [key!, heads * head],
      [value!, (heads + kvHeads) * head],
    ] as const) {
      kernel.set(part, kernel.inputs[0]!);
      kernel.advance(part, start);
    }
    kernel.set(out!, kernel.outputs[0]!);
    kernel.set(statistics!, kernel.outputs[1]!);
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        kernel.loop(tokens, 1, (t) => {
          this.locate(RAX, key!, t, token);
          this.angles(t);
          kernel.rotate(rotated, headWidth);
          this.locate(RDX, transposed, t, FLOAT);
          this.writeColumn(rotated);
        });
        kernel.loop(group, 1, () => {
          kernel.loop(tokens, TILE, (position) => {
            for (let row = 0; row < TILE; row++) {
              this.locate(RAX, query!, position, token, row * token);
              this.angles(position, row);
              kernel.rotate(at(RSP, queries.offset + row * head), headWidth, { scale: shape.scale });
            }
            this.setKeyEnd(position);
            this.eachKeyTile((vectors) => {
              this.zeroSums(vectors);
              code.addressOf(RDI, queries);
              code.move(R8, transposed);
              code.addressOf(R8, atIndex(R8, R11, FLOAT));
              code.constant(RCX, headWidth);
              this.product(vectors, { register: RDI, row: head, step: FLOAT }, { register: R8, row: 0, step: padded });
              for (let row = 0; row < TILE; row++)
                for (let j = 0; j < vectors; j++) {
                  const place = weights.offset + row * padded + j * sizes.vector;
                  code.storeVector(atIndex(RSP, R11, FLOAT, place), this.sum(row, j, vectors));
                }
            });
            this.hide(position, weights, HIDDEN);
            this.locate(RDX, statistics!, position, 2 * FLOAT);
            for (let row = 0; row < TILE; row++)
              this.#softmax(at(RSP, weights.offset + row * padded), at(RDX, row * 2 * FLOAT));
            for (const { from, vectors } of this.headParts()) {
              this.zeroSums(vectors);
              code.addressOf(RDI, weights);
              code.move(R8, value!);
              if (from > 0) code.addConstant(R8, FLOAT * from);
              code.move(RCX, position);
              code.addConstant(RCX, TILE);
              this.product(vectors, { register: RDI, row: padded, step: FLOAT }, { register: R8, row: 0, step: token });
              this.locate(RSI, out!, position, outToken);
              this.locate(RDX, statistics!, position, 2 * FLOAT);
              const factor = TILE * vectors;
              for (let row = 0; row < TILE; row++) {
                code.broadcast(factor, at(RDX, row * 2 * FLOAT + FLOAT));
                for (let j = 0; j < vectors; j++) {
                  const sum = this.sum(row, j, vectors);
                  code.vector("multiply", sum, sum, factor);
                  code.storeVector(at(RSI, row * outToken + FLOAT * from + j * sizes.vector), sum);
                }
              }
            }
          });
          kernel.advance(query!, head);
          kernel.advance(out!, head);
          kernel.advance(statistics!, 2 * FLOAT * tokens);
        });
        kernel.advance(key!, head);
        kernel.advance(value!, head);
      });
      kernel.advance(query!, tokens * token - heads * head);
      kernel.advance(out!, (tokens - 1) * outToken);
      kernel.advance(key!, tokens * token - kvHeads * head);
      kernel.advance(value!, tokens * token - kvHeads * head);
    });
  }

  /** Replaces the scores of a query by e^(score - largest), and stores the largest and 1 / the sum. r10 is the number of scores. */
  #softmax(scores: Address, statistics: Address): void {
    const { code, kernel } = this;
    const [x, largest, total, one] = [0, 9, 10, 11];
    const each = (body: (place: Address) => void) => {
      code.addressOf(RSI, scores);
      code.move(RCX, R10);
      const again = code.label();
      code.place(again);
      body(at(RSI));
      code.addConstant(RSI, this.sizes.vector);
      code.addConstant(RCX, -code.vectorWidth);
      code.jumpIf("more", again);
    };
    code.loadVector(largest, scores);
    each((place) => code.vector("maximum", largest, largest, place));
    code.reduce("maximum", largest, largest, x);
    code.constant(RAX, exponentialTable());
    code.zero(total);
    each((place) => {
      code.loadVector(x, place);
      code.vector("subtract", x, x, largest);
      exponential(code, x, RAX, [12, 13, 14]);
      code.vector("add", total, total, x);
      code.storeVector(place, x);
    });
    code.reduce("add", total, total, x);
    kernel.number(one, 1);
    code.vector("divide", one, one, total);
    code.storeFloat(statistics, largest);
    code.storeFloat({ ...statistics, offset: statistics.offset + FLOAT }, one);
  }
}
