/**
 * onnxruntime's CUDA provider: two libraries beside its own, too large for the npm registry, which the package's post-install
 * script downloads.
 */
import { dlopen } from "bun:ffi";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { libraryFolder } from "./onnxruntime.ts";

/** With a function that each of them has. */
const FILES = {
  "libonnxruntime_providers_shared.so": "Provider_GetHost",
  "libonnxruntime_providers_cuda.so": "GetProvider",
};

export const HOW_TO_GET_CUDA = "get them, on Linux on x64: bun node_modules/onnxruntime-node/script/install.js";

/** Whether the libraries are there; whether they load is `expectCudaProvider`'s to say. */
export const hasCudaProvider = (folder = libraryFolder()): boolean =>
  Object.keys(FILES).every((file) => existsSync(join(folder, file)));

/** @throws {Error} in one line, with what is missing. */
export function expectCudaProvider(folder = libraryFolder()): void {
  const missing = Object.keys(FILES).filter((file) => !existsSync(join(folder, file)));
  if (missing.length > 0) {
    throw new Error(
      `onnxruntime's CUDA provider is not installed: ${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} not in ${folder}; ${HOW_TO_GET_CUDA}`,
    );
  }
  // onnxruntime itself says only that a library failed to load.
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
