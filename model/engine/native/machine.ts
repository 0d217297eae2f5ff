/**
 * Machine code in memory that this process may execute. The memory is writable while code is written and executable afterwards, never
 * both. Code stays until the process ends. Only Linux on x64 with AVX2 has machine code here; elsewhere onnxruntime's operators run.
 */
import { dlopen, type Pointer, toArrayBuffer } from "bun:ffi";
import { readFileSync } from "node:fs";
import type { VectorWidth } from "./assembler.ts";

/** From sys/mman.h of Linux. */
const [PROT_READ, PROT_WRITE, PROT_EXEC] = [1, 2, 4];
const [MAP_PRIVATE, MAP_ANONYMOUS] = [2, 0x20];
const PAGE_BYTES = 4096;

/** CPU flags, by Linux's names, that machine code with vectors of each width needs. */
const NEEDED = {
  16: ["avx512f", "avx512dq", "avx512vl", "avx2", "fma", "f16c"],
  8: ["avx2", "fma", "f16c"],
} as const satisfies Record<VectorWidth, readonly string[]>;

/** The widest vectors that a CPU with these flags has; null if our code does not run on the CPU. */
export function vectorWidthOf(flags: ReadonlySet<string>): VectorWidth | null {
  const widths = [16, 8] as const;
  return widths.find((vectorWidth) => NEEDED[vectorWidth].every((flag) => flags.has(flag))) ?? null;
}

let known: VectorWidth | null | undefined;

/** The vector width of this machine; null if its CPU or its system runs no code of ours. */
export function machineVectorWidth(): VectorWidth | null {
  if (known === undefined) known = allowsCode() ? vectorWidthOf(cpuFlags()) : null;
  return known;
}

/** False where a hardened system lets no process execute what it wrote. */
function allowsCode(): boolean {
  if (process.platform !== "linux" || process.arch !== "x64") return false;
  try {
    // The instruction ret.
    executable(Uint8Array.of(0xc3));
    return true;
  } catch {
    return false;
  }
}

/** The name of the vector instructions, for a reader. */
export const instructionsOf = (vectorWidth: VectorWidth): string => (vectorWidth === 16 ? "AVX-512" : "AVX2");

/** The flags of what both the CPU and Linux support. */
function cpuFlags(): ReadonlySet<string> {
  const flags = /^flags\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1] ?? "";
  return new Set(flags.trim().split(" "));
}

/** @returns the address of the code. @throws {Error} if the system allows no memory for code */
export function executable(code: Uint8Array): Pointer {
  const { mmap, mprotect } = dlopen("libc.so.6", {
    mmap: { args: ["ptr", "u64", "i32", "i32", "i32", "i64"], returns: "ptr" },
    mprotect: { args: ["ptr", "u64", "i32"], returns: "i32" },
  }).symbols;
  const size = Math.ceil(code.length / PAGE_BYTES) * PAGE_BYTES;
  const place = mmap(null, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) as Pointer | null;
  // mmap fails with the address -1.
  if (place === null || place > Number.MAX_SAFE_INTEGER) throw new Error(`no memory for ${size} bytes of code`);
  new Uint8Array(toArrayBuffer(place, 0, size)).set(code);
  if (mprotect(place, size, PROT_READ | PROT_EXEC) !== 0)
    throw new Error("this system does not let a process execute code that it wrote");
  return place;
}
