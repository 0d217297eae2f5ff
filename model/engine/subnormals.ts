/**
 * Treats subnormal numbers (smaller than 1.2e-38) as zero on the calling thread. In attention, onnxruntime's softmax gives
 * subnormal numbers at masked places, and a CPU is a hundred times slower with such numbers.
 *
 * Two bits of the register MXCSR turn this on. MXCSR is in the thread's floating-point environment (C's fegetenv and fesetenv). The bits
 * are set only while `run` runs, so JavaScript's own arithmetic does not change.
 * Source: Intel 64 manual, volume 1, 10.2.3 (MXCSR: FTZ, DAZ); glibc, sysdeps/x86_64/fpu/bits/fenv.h (its place in fenv_t).
 */
import { dlopen, type Pointer, ptr } from "bun:ffi";

const FENV_BYTES = 32;
/** Index of MXCSR among the 32-bit words of fenv_t. */
const MXCSR = 7;
const FLUSH_TO_ZERO = 1 << 15;
const SUBNORMALS_ARE_ZERO = 1 << 6;

/** @returns a function that runs its argument with subnormals as zero. On machines other than Linux x64, subnormals stay as they are. */
export function subnormalsAsZero(): <T>(run: () => T) => T {
  if (process.platform !== "linux" || process.arch !== "x64") return (run) => run();
  const { fegetenv, fesetenv } = dlopen("libm.so.6", {
    fegetenv: { args: ["ptr"], returns: "i32" },
    fesetenv: { args: ["ptr"], returns: "i32" },
  }).symbols;
  const before = new Int32Array(new ArrayBuffer(FENV_BYTES));
  const flushing = new Int32Array(new ArrayBuffer(FENV_BYTES));
  const [beforeAt, flushingAt] = [ptr(before), ptr(flushing)] as [Pointer, Pointer];
  return (run) => {
    fegetenv(beforeAt);
    flushing.set(before);
    flushing[MXCSR]! |= FLUSH_TO_ZERO | SUBNORMALS_ARE_ZERO;
    fesetenv(flushingAt);
    try {
      return run();
    } finally {
      fesetenv(beforeAt);
    }
  };
}
