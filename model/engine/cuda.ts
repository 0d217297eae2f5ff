/**
 * NVIDIA GPUs for onnxruntime: its CUDA provider (two libraries that onnxruntime-node's post-install script downloads), and the
 * memory of the first GPU (through the CUDA runtime that the provider is linked to).
 * Source: CUDA Runtime API, "Memory Management".
 */
import { CString, dlopen, type Pointer, ptr } from "bun:ffi";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { DeviceMemory } from "./memory.ts";
import { libraryFolder } from "./onnxruntime.ts";

/** Each library with one of its functions. */
const FILES = {
  "libonnxruntime_providers_shared.so": "Provider_GetHost",
  "libonnxruntime_providers_cuda.so": "GetProvider",
};

export const HOW_TO_GET_CUDA = "on Linux x64, get them with: bun node_modules/onnxruntime-node/script/install.js";

/** True if the libraries exist; `expectCudaProvider` checks that they load. */
export const hasCudaProvider = (folder = libraryFolder()): boolean =>
  Object.keys(FILES).every((file) => existsSync(join(folder, file)));

/** @throws {Error} naming what is missing. */
export function expectCudaProvider(folder = libraryFolder()): void {
  const missing = Object.keys(FILES).filter((file) => !existsSync(join(folder, file)));
  if (missing.length > 0) {
    throw new Error(
      `onnxruntime's CUDA provider is not installed: ${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} not in ${folder}; ${HOW_TO_GET_CUDA}`,
    );
  }
  // onnxruntime's own message does not name the library that failed to load.
  for (const [file, symbol] of Object.entries(FILES)) {
    try {
      dlopen(join(folder, file), { [symbol]: { args: [], returns: "ptr" } });
    } catch (error) {
      throw new Error(
        `onnxruntime's CUDA provider does not load: ${(error as Error).message}; it needs CUDA and cuDNN`,
      );
    }
  }
}

/** The runtime library of each CUDA release that the provider is built for. */
const RUNTIMES = ["libcudart.so.13", "libcudart.so.12"] as const;

/** cudaMemcpyKind. */
const TO_DEVICE = 1;
const TO_HOST = 2;

function loadRuntime() {
  for (const name of RUNTIMES) {
    try {
      return dlopen(name, {
        cudaMalloc: { args: ["ptr", "u64"], returns: "i32" },
        cudaFree: { args: ["ptr"], returns: "i32" },
        cudaMemcpy: { args: ["ptr", "ptr", "u64", "i32"], returns: "i32" },
        cudaDeviceSynchronize: { args: [], returns: "i32" },
        cudaGetErrorString: { args: ["i32"], returns: "ptr" },
      }).symbols;
    } catch {
      // Try the next one.
    }
  }
  throw new Error(`device cuda: neither ${RUNTIMES.join(" nor ")} loads; install CUDA`);
}

/** @throws {Error} if the CUDA runtime does not load. */
export function cudaMemory(): DeviceMemory {
  const cuda = loadRuntime();
  const check = (code: number, what: string) => {
    if (code === 0) return;
    throw new Error(`device cuda: ${what}: ${new CString(cuda.cudaGetErrorString(code)!)}`);
  };
  const copy = (to: Pointer, from: Pointer, bytes: number, kind: number) => {
    check(cuda.cudaMemcpy(to, from, bytes, kind), `copying ${bytes} bytes`);
    // cudaMemcpy may return before a copy to the device ends, and graphs run in another stream.
    check(cuda.cudaDeviceSynchronize(), `waiting for a copy of ${bytes} bytes`);
  };
  return {
    allocate(bytes) {
      const cell = new BigUint64Array(new ArrayBuffer(8));
      check(cuda.cudaMalloc(ptr(cell), bytes), `allocating an array of ${bytes} bytes`);
      return Number(cell[0]) as Pointer;
    },
    free: (address) => check(cuda.cudaFree(address), "freeing memory"),
    send: (to, from, bytes) => copy(to, from, bytes, TO_DEVICE),
    fetch: (to, from, bytes) => copy(to, from, bytes, TO_HOST),
  };
}
