/**
 * Large pages of memory for an array. A CPU finds each page of an array in a table, and remembers only some thousand pages. With pages of 4
 * KiB it reads this table again and again while it reads tens of megabytes; with pages of 2 MiB it does not. Source: Linux,
 * Documentation/admin-guide/mm/transhuge.rst; madvise(2).
 */
import { dlopen, ptr } from "bun:ffi";

const LARGE_PAGE_BYTES = 2 ** 21;
/** From Linux's asm-generic/mman-common.h. */
const MADV_HUGEPAGE = 14;

/**
 * Asks Linux to put an array into large pages as soon as it is written. Linux may not do so: then, and on other systems, nothing changes.
 * A large page takes memory as a whole, even if the program writes only a part of it.
 */
export function preferLargePages({ buffer, byteOffset, byteLength }: Float32Array<ArrayBuffer>): void {
  if (process.platform !== "linux") return;
  const address = ptr(buffer, byteOffset);
  const first = Math.ceil(address / LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES;
  const end = Math.floor((address + byteLength) / LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES;
  if (end <= first) return;
  const { madvise } = dlopen("libc.so.6", { madvise: { args: ["u64", "u64", "i32"], returns: "i32" } }).symbols;
  madvise(BigInt(first), BigInt(end - first), MADV_HUGEPAGE);
}
