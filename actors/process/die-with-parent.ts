/** Ask the kernel to kill this process when its parent ends: the only thing that reaches a stopped or looping process. */
import { dlopen } from "bun:ffi";

/** linux/prctl.h */
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/** @returns false where the system cannot do it; then only what this process notices by itself ends it. */
export function dieWithParent(): boolean {
  if (process.platform !== "linux") return false;
  try {
    const libc = dlopen("libc.so.6", { prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" } });
    return libc.symbols.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) === 0;
  } catch {
    // Another C library than glibc.
    return false;
  }
}
