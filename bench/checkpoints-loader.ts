/** Loads a model with the learner's code. Prints the loader's speed and memory, and the speed of disk and page cache. Argument: folder. */
import { dlopen } from "bun:ffi";
import { readFileSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { loadPretrained, readPretrained } from "../actors/policy/pretrained.ts";
import { layParameters, parameterCount } from "../model/policy/parameters.ts";

/** Peak resident memory of this process in bytes, as Linux reports it. */
const peakBytes = () => 1024 * Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))![1]);

const [folder] = process.argv.slice(2) as [string];
const file = join(folder, "model.safetensors");
const { model } = readPretrained(folder);
const memoryBytes = 4 * parameterCount(model);

async function secondsOf(work: () => unknown): Promise<number> {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
}

/** Reads the file through one buffer that fits a core's cache: the speed of disk or page cache. */
async function readThrough(): Promise<void> {
  const handle = await open(file);
  const buffer = new Uint8Array(2 ** 20);
  for (;;) if ((await handle.read(buffer, 0, buffer.length, null)).bytesRead === 0) break;
  await handle.close();
}

/** Removes the file from the page cache. */
async function forget(): Promise<void> {
  const { symbols } = dlopen("libc.so.6", { posix_fadvise: { args: ["i32", "i64", "i64", "i32"], returns: "i32" } });
  const handle = await open(file, "r+");
  await handle.sync();
  const POSIX_FADV_DONTNEED = 4;
  const code = symbols.posix_fadvise(handle.fd, 0, 0, POSIX_FADV_DONTNEED);
  await handle.close();
  if (code !== 0) throw new Error(`posix_fadvise answered ${code}`);
}

/** New shared memory, of the kind that a learner uses. This process has not touched it yet. */
function newMemory(): Float32Array {
  // A virtual machine's host reclaims idle memory and returns it slowly, so another process touches it first.
  const { exitCode } = Bun.spawnSync([process.execPath, "-e", `new Uint8Array(${memoryBytes}).fill(1)`]);
  if (exitCode !== 0) throw new Error(`a process that touches ${memoryBytes} bytes ended with ${exitCode}`);
  return new Float32Array(new SharedArrayBuffer(memoryBytes));
}

// Brings the file into the page cache.
await readThrough();
const values = newMemory();
const parameters = layParameters(model, values);
const before = peakBytes();
const seconds = await secondsOf(() => loadPretrained(folder, model, parameters));
const extraBytes = peakBytes() - before - memoryBytes;
const cacheSeconds = Math.min(await secondsOf(readThrough), await secondsOf(readThrough));
const fresh = newMemory();
const freshSeconds = cacheSeconds + (await secondsOf(() => fresh.fill(1)));
await forget();
const diskSeconds = await secondsOf(readThrough);
await forget();
const fromDiskSeconds = await secondsOf(() => loadPretrained(folder, model, parameters));
const { size: bytes } = statSync(file);
console.log(
  JSON.stringify({ bytes, seconds, cacheSeconds, freshSeconds, diskSeconds, fromDiskSeconds, extraBytes, memoryBytes }),
);
