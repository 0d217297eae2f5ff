/** Makes the kernel kill this process when its parent ends, even if this process is stopped or in an endless loop. */
import { dlopen } from "bun:ffi";

/** linux/prctl.h */
const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

/** Does nothing where the system cannot do it. */
export function dieWithParent(): void {
  if (process.platform !== "linux") return;
  try {
    const libc = dlopen("libc.so.6", { prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" } });
    libc.symbols.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  } catch {
    // Another C library than glibc.
  }
}
