/** Every vector instruction, run for real at both widths: with low and high registers, and with each form of an address. */
import { expect, test } from "bun:test";
import {
  type Address,
  type Assembler,
  at,
  atIndex,
  type VectorWidth,
} from "../../../../model/engine/native/assembler.ts";
import { RAX, RCX, RSP } from "../../../../model/engine/native/registers.ts";
import { addressOf, argument, bitsOf, describeWidths, floats, machineFunction } from "./machine-code.ts";

/** Registers of each group of eight. */
const SAMPLE = { 8: [1, 6, 8, 11, 15], 16: [1, 6, 8, 15, 16, 22, 27, 31] } as const;
const LOW = SAMPLE[8];

/** Whole numbers, different for each operand and place, so that sums and products are exact. */
const operandValue = (operand: number, i: number) => (operand + 2) * (i % 2 === 0 ? i + 3 : -i - 1) + operand;

type Triple = readonly [to: number, a: number, b: number];
type Write = (code: Assembler, to: number, a: number, b: number | Address) => void;
type Expected = (to: number, a: number, b: number) => number;

/** What `write` leaves in its target: a row of 16 floats for each triple of registers, the operands' old values in these registers. */
function results(
  vectorWidth: VectorWidth,
  triples: readonly Triple[],
  write: Write,
  value = operandValue,
): Float32Array {
  const operands = floats(48, (i) => value(Math.floor(i / 16), i % 16));
  const out = floats(16 * triples.length, () => Number.NaN);
  machineFunction(vectorWidth, (code) => {
    for (const [i, [to, a, b]] of triples.entries()) {
      code.move(RAX, argument(0));
      for (const [operand, register] of [to, a, b].entries()) code.loadVector(register, at(RAX, 64 * operand));
      write(code, to, a, b);
      code.move(RCX, argument(1));
      code.storeVector(at(RCX, 64 * i), to);
    }
  })(addressOf(operands), addressOf(out));
  return out;
}

/** What the registers of a triple hold: a register that is several operands holds the last one. */
function held([to, a, b]: Triple, i: number, value = operandValue): [number, number, number] {
  const registers = new Map([
    [to, value(0, i)],
    [a, value(1, i)],
    [b, value(2, i)],
  ]);
  return [registers.get(to)!, registers.get(a)!, registers.get(b)!];
}

const asBits = (value: number) => new Int32Array(Float32Array.of(value).buffer)[0]!;
const fromBits = (bits: number) => new Float32Array(Int32Array.of(bits).buffer)[0]!;

const three: [string, Write, Expected][] = [
  ["add", (code, to, a, b) => code.vector("add", to, a, b), (_, a, b) => a + b],
  ["subtract", (code, to, a, b) => code.vector("subtract", to, a, b), (_, a, b) => a - b],
  ["multiply", (code, to, a, b) => code.vector("multiply", to, a, b), (_, a, b) => a * b],
  ["divide", (code, to, a, b) => code.vector("divide", to, a, b), (_, a, b) => a / b],
  ["minimum", (code, to, a, b) => code.vector("minimum", to, a, b), (_, a, b) => Math.min(a, b)],
  ["maximum", (code, to, a, b) => code.vector("maximum", to, a, b), (_, a, b) => Math.max(a, b)],
  ["addInts", (code, to, a, b) => code.vector("addInts", to, a, b), (_, a, b) => fromBits((asBits(a) + asBits(b)) | 0)],
  ["and", (code, to, a, b) => code.vector("and", to, a, b), (_, a, b) => fromBits(asBits(a) & asBits(b))],
  ["or", (code, to, a, b) => code.vector("or", to, a, b), (_, a, b) => fromBits(asBits(a) | asBits(b))],
  ["multiplyAdd", (code, to, a, b) => code.multiplyAdd(to, a, b), (to, a, b) => to + a * b],
  ["timesPlus", (code, to, a, b) => code.timesPlus(to, a, b), (to, a, b) => to * a + b],
  ["negativeMultiplyAdd", (code, to, a, b) => code.negativeMultiplyAdd(to, a, b), (to, a, b) => to - a * b],
];

const forms = Array.from({ length: 16 }, (_, base) =>
  [undefined, ...Array(16).keys()].map((index) => ({ base, index })),
)
  .flat()
  .filter(({ base, index }) => index !== RSP && (base !== RSP || index !== undefined) && base !== index);

/** Writes code that sets an address's registers so that the address is `target`. */
function pointAt(code: Assembler, base: number, index: number | undefined, kind: number, target: number): Address {
  const offset = [0, 64, -32, 100_000, -4][kind % 5]!;
  if (index === undefined) {
    code.constant(base, target - offset);
    return at(base, offset);
  }
  if (base === RSP) {
    code.constant(index, target - offset);
    code.subtract(index, RSP);
    return atIndex(base, index, 1, offset);
  }
  const scale = ([4, 8, 1, 2] as const)[kind % 4]!;
  const number = [5, -9, 33][kind % 3]!;
  code.constant(base, target - offset - scale * number);
  code.constant(index, number);
  return atIndex(base, index, scale, offset);
}

describeWidths("the assembler of vectors", (vectorWidth) => {
  const sample = SAMPLE[vectorWidth];
  const triples = sample.flatMap((to) => sample.flatMap((a) => sample.map((b) => [to, a, b] as const)));
  const lanes = Array.from({ length: vectorWidth }, (_, i) => i);
  /** The first `vectorWidth` floats of each row. */
  const rowsOf = (found: Float32Array) =>
    Array.from({ length: found.length / 16 }, (_, row) => found.slice(16 * row, 16 * row + vectorWidth));

  /** Expects each lane of the target to be what `of` says, for every triple of registers. */
  const expectLanes = (write: Write, of: (triple: Triple, lane: number) => number, value = operandValue) => {
    const found = rowsOf(results(vectorWidth, triples, write, value));
    for (const [i, triple] of triples.entries()) {
      const wanted = Float32Array.from(lanes, (lane) => of(triple, lane));
      expect([triple, bitsOf(found[i]!)]).toEqual([triple, bitsOf(wanted)]);
    }
  };

  test.each(three)("%s takes low and high registers, also one as several operands", (_, write, expected) => {
    expectLanes(write, (triple, lane) => expected(...held(triple, lane)));
  });

  test.each(three)("%s takes an operand in memory", (_, write, expected) => {
    const operands = floats(32, (i) => operandValue(2, i % 16));
    const apart = triples.filter(([to, a, b]) => to !== a && b === sample[0]);
    const found = rowsOf(
      results(vectorWidth, apart, (code, to, a) => {
        code.constant(RCX, addressOf(operands) - 4);
        code.constant(RAX, 1);
        write(code, to, a, atIndex(RCX, RAX, 4));
      }),
    );
    for (const [i, [to, a]] of apart.entries()) {
      // Register b may be the target or a: it was loaded last.
      const wanted = Float32Array.from(lanes, (lane) => {
        const [heldTo, heldA] = held([to, a, sample[0]!], lane);
        return expected(heldTo, heldA, operandValue(2, lane));
      });
      expect([to, a, bitsOf(found[i]!)]).toEqual([to, a, bitsOf(wanted)]);
    }
  });

  test.each([8, 16].filter((width) => width <= vectorWidth) as (8 | 16)[])(
    "loadVector and storeVector of %p floats take every form of an address",
    (width) => {
      const data = floats(forms.length * 16, (i) => i + 1);
      const out = floats(forms.length * 16);
      const registers = [...Array(2 * width).keys()];
      machineFunction(vectorWidth, (code) => {
        for (const [i, { base, index }] of forms.entries()) {
          const register = registers[(7 * i) % registers.length]!;
          code.loadVector(register, pointAt(code, base, index, i, addressOf(data) + 64 * i), width);
          code.storeVector(pointAt(code, base, index, i + 1, addressOf(out) + 64 * i), register, width);
        }
      })();
      expect(out).toEqual(data.map((value, i) => (i % 16 < width ? value : 0)));
    },
  );

  test("storeFloat writes one float, from any low register to every form of an address", () => {
    const data = floats(16, (i) => i + 1);
    const out = floats(forms.length * 16, () => -1);
    machineFunction(vectorWidth, (code) => {
      for (const [i, { base, index }] of forms.entries()) {
        code.move(RAX, argument(0));
        code.loadVector(i % 16, at(RAX));
        code.storeFloat(pointAt(code, base, index, i, addressOf(out) + 64 * i), i % 16);
      }
    })(addressOf(data));
    expect(out).toEqual(out.map((_, i) => (i % 16 === 0 ? 1 : -1)));
  });

  test("broadcast fills a register with a float from every form of an address", () => {
    const data = floats(forms.length, (i) => i + 0.5);
    const out = floats(forms.length * 16);
    machineFunction(vectorWidth, (code) => {
      for (const [i, { base, index }] of forms.entries()) {
        const register = sample[i % sample.length]!;
        code.broadcast(register, pointAt(code, base, index, i, addressOf(data) + 4 * i));
        code.move(RAX, argument(0));
        code.storeVector(at(RAX, 64 * i), register);
      }
    })(addressOf(out));
    expect(out).toEqual(out.map((_, i) => (i % 16 < vectorWidth ? data[Math.floor(i / 16)]! : 0)));
  });

  test("loadHalf widens 16-bit floats from every form of an address", () => {
    const halves = new Float16Array(new ArrayBuffer(32 * forms.length)).map((_, i) => i - 300.25);
    const out = floats(forms.length * 16);
    machineFunction(vectorWidth, (code) => {
      for (const [i, { base, index }] of forms.entries()) {
        const register = sample[i % sample.length]!;
        code.loadHalf(register, pointAt(code, base, index, i, addressOf(halves) + 32 * i));
        code.move(RAX, argument(0));
        code.storeVector(at(RAX, 64 * i), register);
      }
    })(addressOf(out));
    expect(out).toEqual(out.map((_, i) => (i % 16 < vectorWidth ? halves[i]! : 0)));
  });

  test("storeHalf writes eight floats as the nearest 16-bit ones, from any low register to every form of an address", () => {
    const numbers = [1 / 3, -2 / 3, 65_504, 70_000, 1 + 2 ** -11, 1 + 3 * 2 ** -11, -1e-7, Number.NaN];
    const data = floats(16, (i) => numbers[i % 8]!);
    const out = new Float16Array(new ArrayBuffer(32 * forms.length)).fill(7);
    machineFunction(vectorWidth, (code) => {
      for (const [i, { base, index }] of forms.entries()) {
        code.move(RAX, argument(0));
        code.loadVector(i % 16, at(RAX));
        code.storeHalf(pointAt(code, base, index, i, addressOf(out) + 32 * i), i % 16);
      }
    })(addressOf(data));
    expect([...out]).toEqual(Array.from(out, (_, i) => (i % 16 < 8 ? Math.f16round(numbers[i % 8]!) : 7)));
  });

  test("a vector of 8 floats or of 4 leaves zeros in the rest of a wider register", () => {
    const eight: Write[] = [
      (code, to, a) => code.broadcast(to, a, 8),
      (code, to, a, b) => code.multiplyAdd(to, a, b, 8),
      (code, to, a, b) => code.negativeMultiplyAdd(to, a, b, 8),
      (code, to, a, b) => code.vector("subtract", to, a, b, 8),
    ];
    const expected: Expected[] = [(_, a) => a, (to, a, b) => to + a * b, (to, a, b) => to - a * b, (_, a, b) => a - b];
    const low = LOW.flatMap((to) => LOW.map((a) => [to, a, 9] as const)).filter(([to, a]) => to !== a);
    for (const [index, write] of eight.entries()) {
      const found = rowsOf(results(vectorWidth, low, write));
      for (const [i, triple] of low.entries()) {
        const wanted = Float32Array.from(lanes, (lane) => {
          if (lane >= 8) return 0;
          const [to, a, b] = held(triple, lane);
          return expected[index]!(to, index === 0 ? held(triple, 0)[1] : a, b);
        });
        expect([index, triple, found[i]!]).toEqual([index, triple, wanted]);
      }
    }
    const [four] = rowsOf(results(vectorWidth, [[3, 12, 9]], (code, to, a, b) => code.vector("add", to, a, b, 4)));
    expect(four).toEqual(
      Float32Array.from(lanes, (lane) => (lane < 4 ? operandValue(1, lane) + operandValue(2, lane) : 0)),
    );
  });

  test("broadcast repeats the first float of any register", () => {
    const write: Write = (code, to, a) => code.broadcast(to, a);
    expectLanes(write, (triple) => held(triple, 0)[1]);
  });

  test("zero clears any register", () => {
    const found = results(vectorWidth, triples, (code, to) => code.zero(to));
    for (const row of rowsOf(found)) expect(bitsOf(row)).toEqual(new Int32Array(vectorWidth));
  });

  const halves = (_: number, i: number) => [0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6, 1e6, 3.49, -7, 0, 8.5][i % 12]!;
  const rounded = [0, 2, 2, -0, -2, 2, -3, 1e6, 3, -7, 0, 8];

  test("roundVector and toInts round to the nearest integer, and halves to the even integer", () => {
    const found = rowsOf(results(vectorWidth, triples, (code, to, a) => code.roundVector(to, a), halves));
    const wanted = Float32Array.from(lanes, (lane) => rounded[lane % 12]!);
    for (const row of found) expect(bitsOf(row)).toEqual(bitsOf(wanted));
    const ints = rowsOf(results(vectorWidth, triples, (code, to, a) => code.toInts(to, a), halves));
    for (const row of ints) expect(bitsOf(row)).toEqual(Int32Array.from(wanted));
  });

  test("fromInts makes floats of integers", () => {
    const ints = (operand: number, i: number) => fromBits(operand + 3 * i - 20);
    const write: Write = (code, to, a) => code.fromInts(to, a);
    expectLanes(write, (triple, lane) => asBits(held(triple, lane, ints)[1]), ints);
  });

  test("squareRoot gives the nearest float", () => {
    const value = (operand: number, i: number) => 100 * operand + i ** 2 / 3;
    const write: Write = (code, to, a) => code.squareRoot(to, a);
    expectLanes(write, (triple, lane) => Math.sqrt(Math.fround(held(triple, lane, value)[1])), value);
  });

  test.each([1, 23])("shiftInts multiplies integers by 2 to the power of %p", (bits) => {
    const small = (operand: number, i: number) => fromBits(operand + 3 * i - 20);
    const found = rowsOf(results(vectorWidth, triples, (code, to, a) => code.shiftInts(to, a, bits), small));
    for (const [i, triple] of triples.entries()) {
      const wanted = Int32Array.from(lanes, (lane) => asBits(held(triple, lane, small)[1]) << bits);
      expect([triple, bitsOf(found[i]!)]).toEqual([triple, wanted]);
    }
  });

  test.each([1, 16])("shiftIntsRight divides unsigned integers by 2 to the power of %p", (bits) => {
    const found = rowsOf(results(vectorWidth, triples, (code, to, a) => code.shiftIntsRight(to, a, bits)));
    for (const [i, triple] of triples.entries()) {
      const wanted = Int32Array.from(lanes, (lane) => asBits(held(triple, lane)[1]) >>> bits);
      expect([triple, bitsOf(found[i]!)]).toEqual([triple, wanted]);
    }
  });

  test.each([
    // Places in the 128 bits of a (0 to 3) and of b (4 to 7).
    ["interleaveLow", [0, 4, 1, 5], (code, to, a, b) => code.vector("interleaveLow", to, a, b)],
    ["interleaveHigh", [2, 6, 3, 7], (code, to, a, b) => code.vector("interleaveHigh", to, a, b)],
    ["pickFloats", [1, 3, 6, 4], (code, to, a, b) => code.pick("pickFloats", to, a, b as number, 0b00_10_11_01)],
  ] satisfies [string, number[], Write][])("%s combines the floats of each 128 bits", (_, places, write) => {
    expectLanes(write, (triple, lane) => {
      const place = places[lane % 4]!;
      return held(triple, lane - (lane % 4) + (place % 4))[place < 4 ? 1 : 2];
    });
  });

  if (vectorWidth === 16) {
    test("pickLanes combines whole 128 bits", () => {
      const write: Write = (code, to, a, b) => code.pick("pickLanes", to, a, b as number, 0b01_00_11_10);
      expectLanes(write, (triple, lane) => {
        const from = [2, 3, 0, 1][Math.floor(lane / 4)]!;
        return held(triple, 4 * from + (lane % 4))[lane < 8 ? 1 : 2];
      });
    });
  }

  test.each([
    ["add", (a: number, b: number) => a + b],
    ["maximum", (a: number, b: number) => Math.max(a, b)],
  ] as const)("reduce gives every float of its target the result of %s over all floats", (operation, of) => {
    // With the largest number, and a number that no other sum has, at each place once.
    for (const place of lanes) {
      const one = (_: number, i: number) => (i === place ? 1000 : -(2 ** (i % 16)));
      const low = LOW.flatMap((to) => LOW.map((from) => [to, from, from === 11 ? 12 : 11] as const)).filter(
        ([to, , spare]) => to !== spare,
      );
      const few = place === 3 ? low : low.slice(0, 2);
      const write: Write = (code, to, from, spare) => code.reduce(operation, to, from, spare as number);
      const wanted = lanes.map((lane) => one(0, lane)).reduce(of);
      for (const row of rowsOf(results(vectorWidth, few, write, one)))
        expect(row).toEqual(new Float32Array(vectorWidth).fill(wanted));
    }
  });

  test("clearUpper keeps the first four floats of the low registers and clears the rest", () => {
    const [row] = rowsOf(results(vectorWidth, [[5, 6, 7]], (code) => code.clearUpper()));
    expect(row).toEqual(Float32Array.from(lanes, (lane) => (lane < 4 ? operandValue(0, lane) : 0)));
  });
});
