/**
 * The kernel of the gradient of causal self-attention (policy/attention.ts has the definition; attention-tiles.ts the letters). It
 * computes the weights again, from each query's largest score and the sum of its exponentials.
 * Source: FlashAttention-2, https://arxiv.org/abs/2307.08691.
 */
import { roundUp } from "../graph.ts";
import { type Address, at, atIndex, R8, R11, RAX, RCX, RDI, RDX, RSI, RSP } from "./assembler.ts";
import { AttentionKernel, checkShape, KEYS, TILE, type WholeShape } from "./attention-tiles.ts";
import { exponential, exponentialTable } from "./exponential.ts";
import { FLOAT } from "./kernel.ts";
import type { MachineOperator } from "./operator.ts";

/** Queries whose weights are in memory at once. */
const BLOCK = 64;

/** Inputs: qkv, cos, sin, out, the gradient of out, the second output of `attentionOperator`. Outputs: the gradient of qkv; scratch. */
export function attentionGradientOperator(shape: WholeShape): MachineOperator {
  const { rows, tokens, heads, kvHeads, headWidth } = shape;
  checkShape(shape);
  return {
    inputs: Array.from({ length: 6 }, () => "float32"),
    outputs: [[rows, tokens, (heads + 2 * kvHeads) * headWidth], [gradientScratch(shape).floats]],
    write: (kernel) => new Backward(kernel, shape).write(),
  };
}

/** Places of the gradient's parts in its scratch, in bytes. */
function gradientScratch({ tokens, headWidth }: WholeShape) {
  const padded = roundUp(tokens, KEYS);
  const block = Math.min(BLOCK, tokens);
  const parts = {
    keysTransposed: headWidth * padded,
    valuesTransposed: headWidth * padded,
    keys: tokens * headWidth,
    queries: block * headWidth,
    dKeys: tokens * headWidth,
    dValues: tokens * headWidth,
    weights: block * padded,
    dScores: block * padded,
  };
  let floats = 0;
  const places = Object.fromEntries(
    Object.entries(parts).map(([name, count]) => {
      const place = FLOAT * floats;
      floats += roundUp(count, KEYS);
      return [name, place];
    }),
  ) as Record<keyof typeof parts, number>;
  return { places, floats };
}

class Backward extends AttentionKernel {
  write(): void {
    const { kernel, code, shape, sizes } = this;
    const { rows, tokens, kvHeads, heads, headWidth, scale } = shape;
    const { head, token, outToken, padded, group } = sizes;
    const { places } = gradientScratch(shape);
    const [qkv, , , outInput, dOutInput, statisticsInput] = kernel.inputs;
    const scratch = kernel.outputs[1]!;
    const word = () => kernel.word();
    const [query, key, value, out, dOut, statistics] = [word(), word(), word(), word(), word(), word()];
    const [dQuery, dKey, dValue] = [word(), word(), word()];
    const part = Object.fromEntries(Object.keys(places).map((name) => [name, word()])) as Record<
      keyof typeof places,
      Address
    >;
    for (const [name, place] of Object.entries(places)) {
      kernel.set(part[name as keyof typeof places], scratch);
      kernel.advance(part[name as keyof typeof places], place);
    }
    const starts = [0, heads * head, (heads + kvHeads) * head];
    for (const [i, variable] of [query, key, value].entries()) {
      kernel.set(variable, qkv!);
      kernel.advance(variable, starts[i]!);
    }
    for (const [i, variable] of [dQuery, dKey, dValue].entries()) {
      kernel.set(variable, kernel.outputs[0]!);
      kernel.advance(variable, starts[i]!);
    }
    kernel.set(out, outInput!);
    kernel.set(dOut, dOutInput!);
    kernel.set(statistics, statisticsInput!);
    const dQueries = at(RSP, kernel.memory(TILE * head));
    const deltas = at(RSP, kernel.memory(TILE * FLOAT));
    const [blockEnd, first] = [word(), word()];

    const prepareKeys = () =>
      kernel.loop(tokens, 1, (t) => {
        this.locate(RAX, key, t, token);
        this.angles(t);
        this.locate(RSI, part.keys, t, head);
        kernel.rotate(at(RSI), headWidth);
        this.locate(RDX, part.keysTransposed, t, FLOAT);
        this.writeColumn(at(RSI));
        this.locate(RSI, value, t, token);
        this.locate(RDX, part.valuesTransposed, t, FLOAT);
        this.writeColumn(at(RSI));
        code.zero(0);
        for (const name of ["dKeys", "dValues"] as const) {
          this.locate(RDX, part[name], t, head);
          for (let i = 0; i < head; i += sizes.vector) code.storeVector(at(RDX, i), 0);
        }
      });

    /** Rotates the queries of a tile, and sums the products of `out` and its gradient. */
    const prepareQueries = (position: Address, inBlock: Address) => {
      for (let row = 0; row < TILE; row++) {
        this.locate(RAX, query, position, token, row * token);
        this.angles(position, row);
        this.locate(RDX, part.queries, inBlock, head, row * head);
        kernel.rotate(at(RDX), headWidth, { scale });
        this.locate(RSI, out, position, outToken, row * outToken);
        this.locate(RDI, dOut, position, outToken, row * outToken);
        code.zero(1);
        for (let i = 0; i < head; i += sizes.vector) {
          code.loadVector(0, at(RSI, i));
          code.multiplyAdd(1, 0, at(RDI, i));
        }
        code.reduce("add", 1, 1, 0);
        code.storeFloat({ ...deltas, offset: deltas.offset + row * FLOAT }, 1);
      }
    };

    const each = (vectors: number, body: (row: number, place: Address, sum: number) => void) => {
      for (let row = 0; row < TILE; row++)
        for (let j = 0; j < vectors; j++)
          body(row, atIndex(RSI, R11, FLOAT, row * padded + j * sizes.vector), this.sum(row, j, vectors));
    };

    /** Weights of the tile's queries, 0 where a query does not see a key. */
    const computeWeights = (position: Address, inBlock: Address) => {
      this.setKeyEnd(position);
      this.locate(RSI, part.weights, inBlock, padded);
      this.eachKeyTile((vectors) => {
        this.zeroSums(vectors);
        this.locate(RDI, part.queries, inBlock, head);
        code.move(R8, part.keysTransposed);
        code.addressOf(R8, atIndex(R8, R11, FLOAT));
        code.constant(RCX, headWidth);
        this.product(vectors, { register: RDI, row: head, step: FLOAT }, { register: R8, row: 0, step: padded });
        this.locate(RDX, statistics, position, 2 * FLOAT);
        code.constant(RAX, exponentialTable());
        const first = TILE * vectors;
        const spare = [first + 1, first + 2, first + 3] as const;
        each(vectors, (row, place, sum) => {
          code.broadcast(first, at(RDX, row * 2 * FLOAT));
          code.vector("subtract", sum, sum, first);
          exponential(code, sum, RAX, spare);
          code.broadcast(first, at(RDX, row * 2 * FLOAT + FLOAT));
          code.vector("multiply", sum, sum, first);
          code.storeVector(place, sum);
        });
      });
      this.hide(position, at(RSI), 0);
    };

    /** Gradients of the tile's scores: weight · (dWeight - delta). */
    const computeDScores = (position: Address, inBlock: Address) => {
      this.eachKeyTile((vectors) => {
        this.zeroSums(vectors);
        this.locate(RDI, dOut, position, outToken);
        code.move(R8, part.valuesTransposed);
        code.addressOf(R8, atIndex(R8, R11, FLOAT));
        code.constant(RCX, headWidth);
        this.product(vectors, { register: RDI, row: outToken, step: FLOAT }, { register: R8, row: 0, step: padded });
        this.locate(RSI, part.weights, inBlock, padded);
        const delta = TILE * vectors;
        each(vectors, (row, place, sum) => {
          code.broadcast(delta, { ...deltas, offset: deltas.offset + row * FLOAT });
          code.vector("subtract", sum, sum, delta);
          code.vector("multiply", sum, sum, place);
        });
        this.locate(RSI, part.dScores, inBlock, padded);
        each(vectors, (_, place, sum) => code.storeVector(place, sum));
      });
    };

    const computeDQueries = (position: Address, inBlock: Address) => {
      for (const { from, vectors } of this.headParts()) {
        this.zeroSums(vectors);
        this.locate(RDI, part.dScores, inBlock, padded);
        code.move(R8, part.keys);
        if (from > 0) code.addConstant(R8, FLOAT * from);
        code.move(RCX, position);
        code.addConstant(RCX, TILE);
        this.product(vectors, { register: RDI, row: padded, step: FLOAT }, { register: R8, row: 0, step: head });
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++)
            code.storeVector(
              { ...dQueries, offset: dQueries.offset + row * head + FLOAT * from + j * sizes.vector },
              this.sum(row, j, vectors),
            );
      }
      for (let row = 0; row < TILE; row++) {
        code.addressOf(RAX, { ...dQueries, offset: dQueries.offset + row * head });
        this.angles(position, row);
        this.locate(RDX, dQuery, position, token, row * token);
        kernel.rotate(at(RDX), headWidth, { scale, sign: -1 });
      }
    };

    /** Adds the block's part to the gradients of four keys, or of four values. */
    const accumulate = (
      sums: Address,
      factor: Address,
      [rowsAt, rowStep]: readonly [Address, number],
      [block, keys]: readonly [Address, Address],
    ) => {
      for (const { from, vectors } of this.headParts()) {
        this.locate(RSI, sums, keys, head, FLOAT * from);
        const places = (row: number, j: number) => at(RSI, row * head + j * sizes.vector);
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++) code.loadVector(this.sum(row, j, vectors), places(row, j));
        // The block's first query that sees one of these keys.
        code.move(RDX, first);
        code.move(RCX, blockEnd);
        code.subtract(RCX, RDX);
        code.subtract(RDX, block);
        code.multiplyConstant(RDI, RDX, padded);
        code.add(RDI, factor);
        code.move(RAX, keys);
        code.addressOf(RDI, atIndex(RDI, RAX, FLOAT));
        code.move(R8, rowsAt === dOut ? first : RDX);
        code.multiplyConstant(R8, R8, rowStep);
        code.add(R8, rowsAt);
        if (from > 0) code.addConstant(R8, FLOAT * from);
        this.product(vectors, { register: RDI, row: FLOAT, step: padded }, { register: R8, row: 0, step: rowStep });
        for (let row = 0; row < TILE; row++)
          for (let j = 0; j < vectors; j++) code.storeVector(places(row, j), this.sum(row, j, vectors));
      }
    };

    const inBlock = word();
    const position = word();
    kernel.loop(rows, 1, () => {
      kernel.loop(kvHeads, 1, () => {
        prepareKeys();
        kernel.loop(group, 1, () => {
          kernel.loop(tokens, BLOCK, (block) => {
            const whole = code.label();
            code.move(RAX, block);
            code.addConstant(RAX, BLOCK);
            code.compareConstant(RAX, tokens);
            code.jumpIf("atMost", whole);
            code.constant(RAX, tokens);
            code.place(whole);
            code.store(blockEnd, RAX);
            kernel.set(position, block);
            kernel.set(inBlock, 0);
            const nextTile = code.label();
            code.place(nextTile);
            prepareQueries(position, inBlock);
            computeWeights(position, inBlock);
            computeDScores(position, inBlock);
            computeDQueries(position, inBlock);
            kernel.advance(inBlock, TILE);
            kernel.advance(position, TILE);
            code.compare(RAX, blockEnd);
            code.jumpIf("less", nextTile);

            kernel.set(position, 0);
            const nextKeys = code.label();
            code.place(nextKeys);
            // The first query of the block that sees these keys.
            const later = code.label();
            code.move(RAX, position);
            code.compare(RAX, block);
            code.jumpIf("atLeast", later);
            code.move(RAX, block);
            code.place(later);
            code.store(first, RAX);
            accumulate(part.dKeys, part.dScores, [part.queries, head], [block, position]);
            accumulate(part.dValues, part.weights, [dOut, outToken], [block, position]);
            kernel.advance(position, TILE);
            code.compare(RAX, blockEnd);
            code.jumpIf("less", nextKeys);
          });
          kernel.advance(query, head);
          kernel.advance(dQuery, head);
          kernel.advance(out, head);
          kernel.advance(dOut, head);
          kernel.advance(statistics, 2 * FLOAT * tokens);
        });
        kernel.loop(tokens, 1, (t) => {
          this.locate(RAX, part.dKeys, t, head);
          this.angles(t);
          this.locate(RDX, dKey, t, token);
          kernel.rotate(at(RDX), headWidth, { sign: -1 });
          this.locate(RSI, part.dValues, t, head);
          this.locate(RDX, dValue, t, token);
          for (let i = 0; i < head; i += sizes.vector) {
            code.loadVector(0, at(RSI, i));
            code.storeVector(at(RDX, i), 0);
          }
        });
        for (const variable of [key, value, dKey, dValue]) kernel.advance(variable, head);
      });
      for (const variable of [query, dQuery]) kernel.advance(variable, tokens * token - heads * head);
      for (const variable of [key, value, dKey, dValue]) kernel.advance(variable, tokens * token - kvHeads * head);
      for (const variable of [out, dOut]) kernel.advance(variable, (tokens - 1) * outToken);
    });
  }
}
