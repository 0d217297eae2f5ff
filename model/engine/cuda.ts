/**
 * NVIDIA GPUs for onnxruntime: its CUDA provider, NVIDIA's libraries that the provider needs, and the memory of the first GPU (through
 * NVIDIA's runtime library). `bun run setup cuda` gets the provider and the libraries. The machine must have NVIDIA's driver.
 *
 * - `loadNvidia` loads the machine's own library if there is one, otherwise the library that `setup cuda` got.
 * - Once a library is loaded by its path, the system finds it by its name. So users need not set LD_LIBRARY_PATH.
 * - Only onnxruntime loads the provider: the provider's constructors crash if onnxruntime has not prepared the process for them.
 * Source: CUDA Runtime API, "Memory Management"; CUDA Driver API, "Version Management".
 */
import { CString, dlopen, type Pointer, ptr } from "bun:ffi";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { DeviceMemory } from "./memory.ts";
import { libraryFolder } from "./onnxruntime.ts";

export const PROVIDER = ["libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"];

const RUNTIME = "libcudart.so.13";
/** NVIDIA's libraries that the provider needs, each with one of its functions. A library needs only the libraries before it. */
export const NVIDIA = {
  [RUNTIME]: "cudaRuntimeGetVersion",
  "libcublasLt.so.13": "cublasLtGetVersion",
  "libcublas.so.13": "cublasGetVersion_v2",
  "libcurand.so.10": "curandGetVersion",
};

/** The driver's library, and the lowest version of CUDA that the driver must support: 13.0, as cuDriverGetVersion returns it. */
const DRIVER = { library: "libcuda.so.1", cudaMin: 13_000 };
const INSTALL_DRIVER = "install R580 or newer";

const HOW_TO_GET_CUDA = "on Linux x64 with NVIDIA's driver R580 or newer, get it with: bun run setup cuda";

/** Where `setup cuda` puts NVIDIA's libraries. */
export const nvidiaFolder = join(import.meta.dir, "../../node_modules/.bunraku/cuda");

/** The driver is missing or too old; the libraries are there. */
export class DriverError extends Error {
  override readonly name = "DriverError";
}

/**
 * Loads what the provider needs; onnxruntime loads the provider.
 *
 * @throws {DriverError} if only the driver is missing or too old.
 * @throws {Error} naming what is missing.
 */
export function expectCudaProvider(folder = libraryFolder(), nvidia = nvidiaFolder): void {
  const missing = PROVIDER.filter((file) => !existsSync(join(folder, file)));
  if (missing.length > 0) {
    throw new Error(
      `onnxruntime's CUDA provider is not installed: ${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} not in ${folder}; ${HOW_TO_GET_CUDA}`,
    );
  }
  loadNvidia(nvidia);
  const version = new Int32Array(1);
  try {
    const { symbols } = dlopen(DRIVER.library, { cuDriverGetVersion: { args: ["ptr"], returns: "i32" } });
    symbols.cuDriverGetVersion(ptr(version));
  } catch (cause) {
    throw new DriverError(`NVIDIA's driver is missing: ${DRIVER.library} does not load; ${INSTALL_DRIVER}`, { cause });
  }
  if (version[0]! < DRIVER.cudaMin) {
    const made = `${Math.floor(version[0]! / 1000)}.${Math.floor((version[0]! % 1000) / 10)}`;
    throw new DriverError(
      `NVIDIA's driver supports CUDA ${made}, but onnxruntime's CUDA provider needs CUDA 13; ${INSTALL_DRIVER}`,
    );
  }
}

/**
 * Loads NVIDIA's libraries, each from the machine or, if the machine does not have it, from `folder`.
 *
 * @throws {Error} naming a library that does not load
 */
function loadNvidia(folder: string): void {
  for (const [name, symbol] of Object.entries(NVIDIA)) {
    if (loadError(name, symbol) === null) continue;
    const error = loadError(join(folder, name), symbol);
    if (error !== null)
      throw new Error(`onnxruntime's CUDA provider needs ${name}, which does not load (${error}); ${HOW_TO_GET_CUDA}`);
  }
}

/** True if the machine has these libraries of NVIDIA. */
export const machineHasNvidia = (names: readonly string[]): boolean =>
  Object.entries(NVIDIA).every(([name, symbol]) => !names.includes(name) || loadError(name, symbol) === null);

/** Loads a library. @returns why that fails; null if it is loaded */
function loadError(library: string, symbol: string): string | null {
  try {
    dlopen(library, { [symbol]: { args: ["ptr"], returns: "i32" } });
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Values of the enum cudaMemcpyKind. */
const TO_DEVICE = 1;
const TO_HOST = 2;

function loadRuntime() {
  loadNvidia(nvidiaFolder);
  return dlopen(RUNTIME, {
    cudaMalloc: { args: ["ptr", "u64"], returns: "i32" },
    cudaFree: { args: ["ptr"], returns: "i32" },
    cudaMemcpy: { args: ["ptr", "ptr", "u64", "i32"], returns: "i32" },
    cudaDeviceSynchronize: { args: [], returns: "i32" },
    cudaGetErrorString: { args: ["i32"], returns: "ptr" },
  }).symbols;
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
