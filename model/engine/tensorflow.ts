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

let loaded: { readonly library: Library; readonly use: string } | undefined;

/** TensorFlow's state belongs to the process, so a process has one library, one device and one number of threads. */
function load(path: string, options: LibraryOptions): Library {
  const use = `${path} with device ${options.device} and threads ${options.threads}`;
  if (loaded !== undefined) {
    if (loaded.use === use) return loaded.library;
    throw new Error(`libtensorflow ${loaded.use} is loaded already; a process cannot use ${use} too`);
  }
  if (kernelsFolder() === null) throw new Error(NO_KERNELS);
  const library = new Library(path, options);
  const require = createRequire(import.meta.url);
  const kernels = "@tensorflow/tfjs-node-gpu/dist";
  require(`${kernels}/register_all_kernels.js`);
  const { NodeJSKernelBackend } = require(`${kernels}/nodejs_kernel_backend.js`);
  tf.registerBackend(BACKEND, () => new NodeJSKernelBackend(library, "@tensorflow/tfjs-node-gpu"));
  loaded = { library, use };
  return library;
}

/** @throws {LibraryError} if `path` is no usable TensorFlow, or lacks the device. */
export function tensorflowEngine(path: string, options: LibraryOptions): Engine {
  const library = load(path, options);
  const { TF_Version: version } = library;
  const device = library.isUsingGpuDevice() ? "cuda" : "cpu";
  return immediateEngine("tensorflow", `${device}, TensorFlow ${version}`, BACKEND, false);
}
