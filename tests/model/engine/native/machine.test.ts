/** Which machines run machine code of ours, and memory for it. */
import { read } from "bun:ffi";
import { expect, test } from "bun:test";
import { Assembler } from "../../../../model/engine/native/assembler.ts";
import {
  executable,
  type Instructions,
  instructionsOf,
  machineInstructions,
  missingForBfloat16,
  vectorWidthOf,
} from "../../../../model/engine/native/machine.ts";
import { RAX } from "../../../../model/engine/native/registers.ts";
import { describeWhere } from "../../../needs.ts";
import { callable, lackOf } from "./machine-code.ts";

const avx2 = ["fpu", "avx", "avx2", "fma", "f16c"];
const avx512 = [...avx2, "avx512f", "avx512dq", "avx512vl"];
const amx = [...avx512, "amx_tile", "amx_bf16"];

test.each([
  [[], null],
  [avx2.filter((flag) => flag !== "avx2"), null],
  [avx2.filter((flag) => flag !== "fma"), null],
  [avx2.filter((flag) => flag !== "f16c"), null],
  [avx2, "AVX2"],
  [avx512, "AVX-512"],
  [amx, "AMX"],
  [amx.filter((flag) => flag !== "amx_tile"), "AVX-512"],
  [amx.filter((flag) => flag !== "amx_bf16"), "AVX-512"],
  [amx.filter((flag) => flag !== "avx512dq"), "AVX2"],
  [avx512.filter((flag) => flag !== "avx512f"), "AVX2"],
  [avx512.filter((flag) => flag !== "avx512dq"), "AVX2"],
  [avx512.filter((flag) => flag !== "avx512vl"), "AVX2"],
  [avx512.filter((flag) => flag !== "avx2"), null],
  [avx512.filter((flag) => flag !== "fma"), null],
  [avx512.filter((flag) => flag !== "f16c"), null],
] as [string[], Instructions | null][])("a CPU with the flags %p runs code for %p", (flags, instructions) => {
  expect(instructionsOf(new Set(flags))).toBe(instructions);
});

test.each([
  [null, [], "machine code for AVX-512"],
  ["AVX2", ["avx512bw", "avx512_bf16"], "machine code for AVX-512"],
  ["AVX-512", ["avx512bw"], "a CPU with avx512bw and avx512_bf16"],
  ["AVX-512", ["avx512_bf16"], "a CPU with avx512bw and avx512_bf16"],
  ["AVX-512", ["avx512bw", "avx512_bf16"], null],
  ["AMX", ["avx512bw", "avx512_bf16"], null],
] as const)("for products of bfloat16, %p with the flags %p lacks %p", (instructions, flags, lack) => {
  expect(missingForBfloat16(instructions, () => new Set(flags))).toBe(lack);
});

test("a vector has 8 floats with AVX2, and 16 with AVX-512 and AMX", () => {
  expect((["AVX2", "AVX-512", "AMX"] as const).map(vectorWidthOf)).toEqual([8, 16, 16]);
});

test("the instructions of this machine follow from the flags that Linux lists; other systems run no code of ours", async () => {
  const isOurs = process.platform === "linux" && process.arch === "x64";
  const lines = isOurs ? (await Bun.file("/proc/cpuinfo").text()).split("\n") : [];
  const flags = lines.find((line) => line.startsWith("flags"))?.split(/[ \t:]+/) ?? [];
  const expected = instructionsOf(new Set(flags));
  // A virtual machine may show a CPU's tiles where its Linux does not let a process use them.
  const allowed = expected === "AMX" ? ["AMX", "AVX-512"] : [expected];
  expect(allowed).toContain(machineInstructions());
});

describeWhere(lackOf(8), "executable memory", () => {
  const returning = (value: number) => {
    const code = new Assembler(8);
    code.constant(RAX, value);
    code.return();
    return code.finish();
  };

  test("keeps each piece of code at an address of its own until the process ends", () => {
    const functions = [1, 2, 3].map((value) => callable(returning(value)));
    Bun.gc(true);
    expect(functions.map((run) => run())).toEqual([1n, 2n, 3n]);
  });

  test("is not writable, and holds the code's bytes", async () => {
    const code = returning(77);
    const place = executable(code);
    expect(Array.from(code, (_, i) => read.u8(place, i))).toEqual([...code]);
    const lines = (await Bun.file("/proc/self/maps").text()).split("\n");
    const mapping = lines.find((line) => {
      const [start, end] = line
        .split(" ")[0]!
        .split("-")
        .map((part) => Number.parseInt(part, 16));
      return start! <= place && place < end!;
    });
    expect(mapping!.split(" ")[1]).toBe("r-xp");
  });

  test("takes code of any length up to whole pages, and longer", () => {
    for (const length of [4095, 4096, 4097, 20_000]) {
      const code = new Uint8Array(length).fill(0x90);
      const end = returning(length);
      code.set(end, length - end.length);
      expect(callable(code)()).toBe(BigInt(length));
    }
  });
});
