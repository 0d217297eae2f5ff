/**
 * Huge pages of memory for an array. To read an array, the CPU looks up the address of each page. The CPU remembers the addresses of a
 * few thousand pages. An array of tens of megabytes has more pages of 4 KiB than that, but only a few pages of 2 MiB.
 * Source: Linux, Documentation/admin-guide/mm/transhuge.rst; madvise(2).
 */
import { dlopen, ptr } from "bun:ffi";

const HUGE_PAGE_BYTES = 2 ** 21;
/** From Linux's asm-generic/mman-common.h. */
const MADV_HUGEPAGE = 14;

/**
 * Asks Linux to put arrays into huge pages as soon as they are written. If Linux does not do so, and on other systems, nothing changes.
 * A huge page takes memory as a whole, even if the program writes only a part of it.
 */
export function preferHugePages(arrays: Iterable<Float32Array<ArrayBuffer>>): void {
  if (process.platform !== "linux") return;
  const { madvise } = dlopen("libc.so.6", { madvise: { args: ["u64", "u64", "i32"], returns: "i32" } }).symbols;
  for (const { buffer, byteOffset, byteLength } of arrays) {
    const address = ptr(buffer, byteOffset);
    const first = Math.ceil(address / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    const end = Math.floor((address + byteLength) / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    if (first < end) madvise(BigInt(first), BigInt(end - first), MADV_HUGEPAGE);
  }
}
