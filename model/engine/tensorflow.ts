/**
 * The tensorflow engine: each operation runs immediately on libtensorflow, through the kernels of @tensorflow/tfjs-node-gpu. It is
 * meant for a learner on an NVIDIA GPU; it runs on a CPU too.
 */
import { createRequire } from "node:module";
import * as tf from "@tensorflow/tfjs-core";
import type { Engine } from "./engine.ts";
import { immediateEngine } from "./immediate.ts";
import { kernelsFolder, NO_KERNELS } from "./tensorflow/find.ts";
import { Library, type LibraryOptions } from "./tensorflow/library.ts";

const BACKEND = "tensorflow";

let loaded: { readonly library: Library; readonly path: string } | undefined;

/** TensorFlow's state belongs to the process, so a process has one library and one device. */
function load(path: string, options: LibraryOptions): Library {
  if (loaded !== undefined) {
    if (loaded.path === path) return loaded.library;
    throw new Error(`libtensorflow ${loaded.path} is loaded already; a process cannot use ${path} too`);
  }
  if (kernelsFolder() === null) throw new Error(NO_KERNELS);
  const library = new Library(path, options);
  const require = createRequire(import.meta.url);
  const kernels = "@tensorflow/tfjs-node-gpu/dist";
  require(`${kernels}/register_all_kernels.js`);
  const { NodeJSKernelBackend } = require(`${kernels}/nodejs_kernel_backend.js`);
  tf.registerBackend(BACKEND, () => new NodeJSKernelBackend(library, "@tensorflow/tfjs-node-gpu"));
  loaded = { library, path };
  return library;
}

/** @throws {LibraryError} if `path` is no usable TensorFlow, or lacks the device. */
export function tensorflowEngine(path: string, options: LibraryOptions): Engine {
  const library = load(path, options);
  const { TF_Version: version } = library;
  const device = library.isUsingGpuDevice() ? "cuda" : "cpu";
  return immediateEngine("tensorflow", `${device}, TensorFlow ${version}`, BACKEND, false);
}
