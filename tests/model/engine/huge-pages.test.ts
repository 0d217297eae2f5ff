/** Linux's own account of a process's memory (proc(5), smaps) shows which pages a kernel was asked to make large. */
import { ptr } from "bun:ffi";
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { preferHugePages } from "../../../model/engine/huge-pages.ts";

const MEGABYTE = 2 ** 20;

/** True if the memory at this address is to have huge pages. */
function isLarge(address: number): boolean {
  let isHere = false;
  for (const line of readFileSync("/proc/self/smaps", "utf8").split("\n")) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
    if (range) isHere = Number(`0x${range[1]}`) <= address && address < Number(`0x${range[2]}`);
    if (isHere && line.startsWith("VmFlags:")) return line.split(" ").includes("hg");
  }
  throw new Error(`no memory at ${address}`);
}

const hasHugePages = existsSync("/sys/kernel/mm/transparent_hugepage");

test.if(hasHugePages)("the middle of a large array is to have huge pages; its values stay", () => {
  const values = new Float32Array(4 * MEGABYTE).fill(0.5);
  preferHugePages([values]);
  expect(isLarge(ptr(values) + values.byteLength / 2)).toBe(true);
  expect(values.every((value) => value === 0.5)).toBe(true);
});

test("an array that is smaller than a huge page stays as it is", () => {
  const values = new Float32Array(1024).fill(0.5);
  preferHugePages([values]);
  expect(values.every((value) => value === 0.5)).toBe(true);
});
