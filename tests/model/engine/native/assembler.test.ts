/** Every instruction on general registers, run for real: with each register, each form of an address, and jumps in both directions. */
import { expect, test } from "bun:test";
import { type Address, Assembler, at, atIndex, type Condition } from "../../../../model/engine/native/assembler.ts";
import { executable } from "../../../../model/engine/native/machine.ts";
import {
  R9,
  R10,
  R12,
  R13,
  R15,
  RAX,
  RBX,
  RCX,
  RDI,
  RDX,
  RSI,
  RSP,
} from "../../../../model/engine/native/registers.ts";
import { describeWhere } from "../../../needs.ts";
import { addressOf, argument, callable, lackOf, longs, machineFunction } from "./machine-code.ts";

/** All but rsp. */
const REGISTERS = Array.from({ length: 16 }, (_, register) => register).filter((register) => register !== RSP);
const OFFSETS = [0, 8, -8, 127, -128, 4096, -70_000, 0x1234_5678];
const SCALES = [1, 2, 4, 8] as const;
const INDEXES = [3, -7, 1, 260];

type Save = (register: number) => void;

/** The registers that `write` saves, in order. Saving changes one other register and no flag. */
function saved(write: (code: Assembler, save: Save) => void, ...addresses: readonly number[]): bigint[] {
  const out = longs(4096);
  let count = 0;
  const run = machineFunction(8, (code) => {
    write(code, (register) => {
      const pointer = register === RAX ? RCX : RAX;
      code.move(pointer, argument(0));
      code.store(at(pointer, 8 * count++), register);
    });
  });
  run(addressOf(out), ...addresses);
  return [...out.subarray(0, count)];
}

const wrapped = (value: bigint) => BigInt.asIntN(64, value);
const [A, B] = [0x1234_5678_9abc_def0n, -0x0fed_cba9_8765n];

/** Each base with each index, with and without; offsets, scales and the index's number vary. Not rsp without an index. */
const forms = Array.from({ length: 16 }, (_, base) =>
  [undefined, ...REGISTERS].map((index, i) => ({ base, index, kind: 3 * base + i })),
)
  .flat()
  .filter(({ base, index }) => base !== RSP || index !== undefined);

/** Writes code that sets an address's registers so that the address is `target`. */
function pointAt(code: Assembler, { base, index, kind }: (typeof forms)[number], target: number): Address {
  const offset = OFFSETS[kind % OFFSETS.length]!;
  if (index === undefined) {
    code.constant(base, target - offset);
    return at(base, offset);
  }
  if (base === RSP) {
    code.constant(index, target - offset);
    code.subtract(index, RSP);
    return atIndex(base, index, 1, offset);
  }
  if (base === index) {
    code.constant(base, (target - 8) / 2);
    return atIndex(base, index, 1, 8);
  }
  const scale = SCALES[kind % SCALES.length]!;
  const number = INDEXES[(kind >> 2) % INDEXES.length]!;
  code.constant(base, target - offset - scale * number);
  code.constant(index, number);
  return atIndex(base, index, scale, offset);
}

/** A register that an address does not use. */
const free = ({ base, index, kind }: (typeof forms)[number]) => {
  const others = REGISTERS.filter((register) => register !== base && register !== index);
  return others[kind % others.length]!;
};

/** Numbers whose halves are negative as well as positive. */
const numbers = () => longs(forms.length).map((_, i) => BigInt.asIntN(64, BigInt(i + 1) * 0x9e37_79b9_7f4a_7c15n));

describeWhere(lackOf(8), "the assembler of general registers", () => {
  test("loads a constant of 64 bits, or a negative one, into each register", () => {
    const values = [0, 1, -1, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 32, A, B, 2n ** 63n - 1n, -(2n ** 63n)];
    const found = saved((code, save) => {
      for (const register of REGISTERS)
        for (const value of values) {
          code.constant(register, value);
          save(register);
        }
    });
    expect(found).toEqual(REGISTERS.flatMap(() => values.map(BigInt)));
  });

  test.each([
    ["move", (code, to, from) => code.move(to, from), (_, b) => b],
    ["add", (code, to, from) => code.add(to, from), (a, b) => a + b],
    ["subtract", (code, to, from) => code.subtract(to, from), (a, b) => a - b],
    ["multiplyConstant", (code, to, from) => code.multiplyConstant(to, from, 1_000_003), (_, b) => b * 1_000_003n],
    [
      "multiplyConstant by a negative number",
      (code, to, from) => code.multiplyConstant(to, from, -3),
      (_, b) => b * -3n,
    ],
  ] as [string, (code: Assembler, to: number, from: number) => void, (a: bigint, b: bigint) => bigint][])(
    "%s takes every pair of registers, and changes only its target",
    (_, write, expected) => {
      const pairs = REGISTERS.flatMap((to) => REGISTERS.map((from) => [to, from] as const));
      const found = saved((code, save) => {
        for (const [to, from] of pairs) {
          code.constant(to, A);
          code.constant(from, B);
          write(code, to, from);
          save(to);
          const kept = REGISTERS.find((register) => register > RCX && register !== to && register !== from)!;
          code.constant(kept, A);
          code.constant(from, B);
          write(code, to, from);
          save(from === to ? kept : from);
        }
      });
      expect(found).toEqual(
        pairs.flatMap(([to, from]) => [wrapped(expected(from === to ? B : A, B)), from === to ? A : B]),
      );
    },
  );

  test.each([
    ["addConstant", (code, to) => code.addConstant(to, 0x1234_5678), A + 0x1234_5678n],
    ["addConstant of a negative number", (code, to) => code.addConstant(to, -1000), A - 1000n],
    ["addConstantLater", (code, to) => code.addConstantLater(to)(-123_456), A - 123_456n],
    ["andConstant", (code, to) => code.andConstant(to, 0x7fff_0ff0), A & 0x7fff_0ff0n],
    ["andConstant with a negative number", (code, to) => code.andConstant(to, -64), A & -64n],
    ["shiftRight", (code, to) => code.shiftRight(to, 5), A >> 5n],
  ] as [string, (code: Assembler, to: number) => void, bigint][])("%s takes every register", (_, write, expected) => {
    const found = saved((code, save) => {
      for (const register of REGISTERS) {
        code.constant(register, A);
        write(code, register);
        save(register);
      }
    });
    expect(found).toEqual(REGISTERS.map(() => expected));
  });

  test("shiftRight takes a number as unsigned", () => {
    const found = saved((code, save) => {
      code.constant(R9, -1);
      code.shiftRight(R9, 60);
      save(R9);
    });
    expect(found).toEqual([15n]);
  });

  test.each([
    ["move", (code, to, from) => code.move(to, from), (value) => value],
    ["loadInt32", (code, to, from) => code.loadInt32(to, from), (value) => BigInt.asIntN(32, value)],
    ["load32", (code, to, from) => code.load32(to, from), (value) => BigInt.asUintN(32, value)],
    ["load16", (code, to, from) => code.load16(to, from), (value) => BigInt.asUintN(16, value)],
    ["addressOf", (code, to, from) => code.addressOf(to, from), (_, place) => place],
  ] as [string, (code: Assembler, to: number, from: Address) => void, (value: bigint, place: bigint) => bigint][])(
    "%s reads every form of an address",
    (_, write, expected) => {
      const data = numbers();
      const start = addressOf(data);
      const found = saved((code, save) => {
        for (const [i, form] of forms.entries()) {
          const to = REGISTERS[(5 * i) % REGISTERS.length]!;
          write(code, to, pointAt(code, form, start + 8 * i));
          save(to);
        }
      });
      expect(found).toEqual(forms.map((_, i) => expected(data[i]!, BigInt(start + 8 * i))));
    },
  );

  test.each([
    ["add of memory", (code, to, from) => code.add(to, from), (a, b) => a + b],
    ["subtract of memory", (code, to, from) => code.subtract(to, from), (a, b) => a - b],
  ] as [string, (code: Assembler, to: number, from: Address) => void, (a: bigint, b: bigint) => bigint][])(
    "%s reads every form of an address",
    (_, write, expected) => {
      const data = numbers();
      const start = addressOf(data);
      const found = saved((code, save) => {
        for (const [i, form] of forms.entries()) {
          const place = pointAt(code, form, start + 8 * i);
          code.constant(free(form), A);
          write(code, free(form), place);
          save(free(form));
        }
      });
      expect(found).toEqual(forms.map((_, i) => wrapped(expected(A, data[i]!))));
    },
  );

  test.each([
    ["store", (code, to, from) => code.store(to, from), () => A],
    ["store32", (code, to, from) => code.store32(to, from), (old) => ((old >> 32n) << 32n) | (A & 0xffff_ffffn)],
    ["store16", (code, to, from) => code.store16(to, from), (old) => ((old >> 16n) << 16n) | (A & 0xffffn)],
  ] as [string, (code: Assembler, to: Address, from: number) => void, (old: bigint) => bigint][])(
    "%s writes to every form of an address",
    (_, write, expected) => {
      const data = numbers();
      const before = [...data];
      const start = addressOf(data);
      machineFunction(8, (code) => {
        for (const [i, form] of forms.entries()) {
          const place = pointAt(code, form, start + 8 * i);
          code.constant(free(form), A);
          write(code, place, free(form));
        }
      })();
      expect([...data]).toEqual(before.map(expected));
    },
  );

  const conditions: [Condition, (a: bigint, b: bigint) => boolean][] = [
    ["equal", (a, b) => a === b],
    ["notEqual", (a, b) => a !== b],
    ["less", (a, b) => a < b],
    ["atLeast", (a, b) => a >= b],
    ["atMost", (a, b) => a <= b],
    ["more", (a, b) => a > b],
  ];
  const compared = [-(2n ** 40n), -5n, -1n, 0n, 1n, 5n, 2n ** 33n];

  test.each(conditions)("jumpIf %s jumps after each kind of comparison exactly if it holds", (condition, holds) => {
    const pairs = compared.flatMap((a) => compared.map((b) => [a, b] as const));
    const memory = longs(pairs.length);
    for (const [i, [, b]] of pairs.entries()) memory[i] = b;
    const found = saved((code, save) => {
      const branch = () => {
        const label = code.label();
        code.constant(RSI, 1);
        code.jumpIf(condition, label);
        code.constant(RSI, 0);
        code.place(label);
        save(RSI);
      };
      for (const [i, [a, b]] of pairs.entries()) {
        const [left, right] = i % 2 === 0 ? [R9, RDX] : [RBX, R15];
        code.constant(left, a);
        code.constant(right, b);
        code.compare(left, right);
        branch();
        code.constant(right, addressOf(memory));
        code.compare(left, at(right, 8 * i));
        branch();
        const isShort = b === BigInt.asIntN(32, b);
        code.constant(right, b);
        if (isShort) code.compareConstant(left, Number(b));
        else code.compare(left, right);
        branch();
      }
    });
    expect(found).toEqual(pairs.flatMap(([a, b]) => new Array<bigint>(3).fill(holds(a, b) ? 1n : 0n)));
  });

  test("compareTo and compareFrom take every register", () => {
    const memory = longs(1);
    memory[0] = 77n;
    const found = saved((code, save) => {
      for (const register of REGISTERS) {
        const base = register === R12 ? R13 : R12;
        code.constant(base, addressOf(memory));
        code.constant(register, 77);
        for (const compare of [() => code.compareConstant(register, 77), () => code.compare(register, at(base))]) {
          const label = code.label();
          compare();
          code.jumpIf("equal", label);
          code.constant(register, 1);
          code.place(label);
          save(register);
          code.constant(base, addressOf(memory));
        }
      }
    });
    expect(found).toEqual(REGISTERS.flatMap(() => [77n, 77n]));
  });

  test("jumps back and jumps forward to one label work over more code than the first buffer holds", () => {
    const found = saved((code, save) => {
      const [again, end] = [code.label(), code.label()];
      code.constant(RBX, 0);
      code.constant(RDI, 5);
      const add = code.addConstantLater(RBX);
      code.place(again);
      for (let i = 0; i < 3000; i++) code.addConstant(RBX, 1);
      code.addConstant(RDI, -1);
      code.jumpIf("equal", end);
      code.compareConstant(RBX, 10_000);
      code.jumpIf("more", end);
      code.jump(again);
      for (let i = 0; i < 3000; i++) code.constant(RBX, 0);
      code.place(end);
      add(1_000_000);
      save(RBX);
      save(RDI);
    });
    expect(found).toEqual([1_003_000n, 4n]);
  });

  test("place sets the targets of earlier jumps, and later jumps go back to the label", () => {
    const found = saved((code, save) => {
      const [first, second, done] = [code.label(), code.label(), code.label()];
      code.constant(RSI, 1);
      code.jump(second);
      code.place(first);
      code.multiplyConstant(RSI, RSI, 10);
      code.addConstant(RSI, 3);
      code.jump(done);
      code.place(second);
      code.multiplyConstant(RSI, RSI, 10);
      code.addConstant(RSI, 2);
      code.jump(first);
      code.place(done);
      save(RSI);
    });
    expect(found).toEqual([123n]);
  });

  test("finish refuses code in which a jump has no target", () => {
    const code = new Assembler(8);
    const label = code.label();
    code.jump(label);
    expect(() => code.finish()).toThrow(Error);
    code.place(label);
    expect(code.finish()).toHaveLength(5);
  });

  test("push and pop move a value from any register to any other", () => {
    const found = saved((code, save) => {
      for (const [i, from] of REGISTERS.entries()) {
        const to = REGISTERS[(i + 4) % REGISTERS.length]!;
        code.constant(from, 100 + i);
        code.push(from);
        code.constant(from, 0);
        code.pop(to);
        save(to);
      }
    });
    expect(found).toEqual(REGISTERS.map((_, i) => BigInt(100 + i)));
  });

  test("call runs the function at each register's address and returns", () => {
    const add = new Assembler(8);
    add.addConstant(R10, 7);
    add.return();
    const registers = REGISTERS.filter((register) => register !== R10);
    const found = saved((code, save) => {
      code.constant(R10, 0);
      for (const register of registers) {
        code.move(register, argument(1));
        code.call(register);
      }
      save(R10);
    }, executable(add.finish()));
    expect(found).toEqual([BigInt(7 * registers.length)]);
  });

  test.each(["prefetch", "prefetchForWriting"] as const)(
    "%s takes every form of an address, also where no memory is, and changes no register",
    (prefetch) => {
      const found = saved((code, save) => {
        for (const form of forms) {
          const place = pointAt(code, form, 64);
          code.constant(free(form), A);
          code[prefetch](place);
          save(free(form));
        }
      });
      expect(found).toEqual(forms.map(() => A));
    },
  );

  test("copyBytes copies exactly rcx bytes from rsi to rdi", () => {
    const source = new Uint8Array(new ArrayBuffer(300)).map((_, i) => i % 251);
    const target = new Uint8Array(new ArrayBuffer(300)).fill(255);
    machineFunction(8, (code) => {
      code.move(RSI, argument(0));
      code.move(RDI, argument(1));
      code.constant(RCX, 273);
      code.copyBytes();
    })(addressOf(source), addressOf(target));
    expect([...target]).toEqual([...source.subarray(0, 273), ...new Array<number>(27).fill(255)]);
  });

  test("return gives rax to the caller", () => {
    const code = new Assembler(8);
    code.constant(RAX, -42);
    code.return();
    expect(callable(code.finish())()).toBe(-42n);
  });
});
