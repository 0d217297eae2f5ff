/**
 * Machine code in memory that this process may execute. The memory is first writable and then executable, never both at once. Code stays
 * until the process ends. Only Linux on x64 with AVX2 has machine code here; elsewhere onnxruntime's operators run.
 */
import { dlopen, type Pointer, toArrayBuffer } from "bun:ffi";
import { readFileSync } from "node:fs";
import { once } from "../once.ts";
import type { VectorWidth } from "./assembler.ts";

/** From sys/mman.h of Linux. */
const [PROT_READ, PROT_WRITE, PROT_EXEC] = [1, 2, 4];
const [MAP_PRIVATE, MAP_ANONYMOUS] = [2, 0x20];
const PAGE_BYTES = 4096;

/** Instruction sets of our machine code. "AMX" means AVX-512 and tiles. */
export type Instructions = "AVX2" | "AVX-512" | "AMX";

const AVX2 = ["avx2", "fma", "f16c"];
const AVX512 = [...AVX2, "avx512f", "avx512dq", "avx512vl"];
/** The CPU flags, by Linux's names, that each instruction set needs; the fastest set first. */
const NEEDED: readonly (readonly [Instructions, readonly string[]])[] = [
  ["AMX", [...AVX512, "amx_tile", "amx_bf16"]],
  ["AVX-512", AVX512],
  ["AVX2", AVX2],
];

/** The fastest instructions of a CPU with these flags; null if our code does not run on the CPU. */
export function instructionsOf(flags: ReadonlySet<string>): Instructions | null {
  return NEEDED.find(([, needed]) => needed.every((flag) => flags.has(flag)))?.[0] ?? null;
}

/** The CPU flags, by Linux's names, that matrix products of bfloat16 in vector registers need besides AVX-512. */
const BFLOAT16 = ["avx512bw", "avx512_bf16"];

/** What this machine lacks for these products; null if it lacks nothing. @param flags  the flags of its CPU */
export function missingForBfloat16(
  instructions: Instructions | null = machineInstructions(),
  flags: () => ReadonlySet<string> = cpuFlags,
): string | null {
  if (instructions === null || instructions === "AVX2") return "machine code for AVX-512";
  const found = flags();
  return BFLOAT16.every((flag) => found.has(flag)) ? null : `a CPU with ${BFLOAT16.join(" and ")}`;
}

/** Floats in a vector. */
export const vectorWidthOf = (instructions: Instructions): VectorWidth => (instructions === "AVX2" ? 8 : 16);

/** The fastest instructions of this machine; null if the CPU or the system cannot run our code. */
export const machineInstructions = once((): Instructions | null => {
  const fastest = allowsCode() ? instructionsOf(cpuFlags()) : null;
  return fastest === "AMX" && !allowsTiles() ? "AVX-512" : fastest;
});

/** Linux's numbers of the system call, of its request (asm/prctl.h), and of the tiles' state. */
const [SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILE_DATA] = [158n, 0x1023n, 18n];

/** Asks Linux to let this process use tiles. @returns false if Linux refuses */
function allowsTiles(): boolean {
  const { syscall } = dlopen("libc.so.6", { syscall: { args: ["i64", "i64", "i64"], returns: "i64" } }).symbols;
  return Number(syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILE_DATA)) === 0;
}

/** False if the system is not Linux on x64, or is hardened so that no process may execute code that it wrote. */
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
  // If mmap fails, it returns the address -1.
  if (place === null || place > Number.MAX_SAFE_INTEGER) throw new Error(`no memory for ${size} bytes of code`);
  new Uint8Array(toArrayBuffer(place, 0, size)).set(code);
  if (mprotect(place, size, PROT_READ | PROT_EXEC) !== 0)
    throw new Error("this system does not let a process execute code that it wrote");
  return place;
}
