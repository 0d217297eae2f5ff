/**
 * Downloads libtensorflow for engine tensorflow: TensorFlow's official archive or, if that fails, the library in the Python wheel.
 * Compiles nothing.
 */
import { mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../../actors/errors.ts";
import { findLibtensorflow, kernelsFolder, NO_KERNELS, placesOf } from "../../model/engine/tensorflow/find.ts";
import { inPending, run, unpackWheel } from "./wheel.ts";

/** Last release with an archive. Source: tensorflow.org/install/lang_c. */
const ARCHIVE_VERSION = "2.18.0";
const ARCHIVE_TIMEOUT_MS = 30 * 60_000;

/** @throws {Error} if the package of the kernels is not installed. */
export function officialSources(gpu: boolean, say: (text: string) => void) {
  const kernels = kernelsFolder();
  if (kernels === null) throw new Error(NO_KERNELS);
  return {
    /** URL of TensorFlow's releases. */
    archives: "https://storage.googleapis.com/tensorflow/versions",
    /** A Python with pip. */
    python: "python3",
    /** True to download the library with support for NVIDIA GPUs. */
    gpu,
    /** Target folder. */
    folder: join(kernels, "deps"),
    say,
  };
}
type Sources = ReturnType<typeof officialSources>;

/**
 * @param found  the library that this machine has; null: none
 * @returns the library's path.
 * @throws {Error} in one line. The line says that LIBTENSORFLOW_PATH names no library, or why each source failed.
 */
export async function setUpTensorflow(
  sources: Sources,
  found = findLibtensorflow(placesOf(process.env)),
): Promise<string> {
  if (found !== null) {
    sources.say("found; nothing to download");
    return found;
  }
  const lib = join(sources.folder, "lib");
  const failures: string[] = [];
  for (const get of [fromArchive, fromWheel]) {
    try {
      await inPending(sources.folder, async (pending) => {
        await get({ ...sources, folder: pending });
        rmSync(lib, { recursive: true, force: true });
        renameSync(join(pending, "lib"), lib);
      });
      return findLibtensorflow({ named: lib, own: undefined, home: undefined, pythonRoots: [] })!;
    } catch (error) {
      failures.push(messageOf(error));
      sources.say(failures.at(-1)!);
    }
  }
  throw new Error(
    `cannot download libtensorflow: ${failures.join("; ")}. Install it yourself and set LIBTENSORFLOW_PATH`,
  );
}

async function fromArchive({ archives, gpu, folder, say }: Sources): Promise<void> {
  if (process.platform !== "linux" || process.arch !== "x64") {
    throw new Error(`there is no official archive for ${process.platform} on ${process.arch}`);
  }
  const url = `${archives}/${ARCHIVE_VERSION}/libtensorflow-${gpu ? "gpu" : "cpu"}-linux-x86_64.tar.gz`;
  say(`downloading ${url}`);
  const response = await fetch(url, { signal: AbortSignal.timeout(ARCHIVE_TIMEOUT_MS) }).catch((error: Error) => {
    throw new Error(`${url} cannot be reached (${error.message})`);
  });
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
  const file = join(folder, "libtensorflow.tar.gz");
  try {
    await Bun.write(file, withProgress(response, say));
    await run(["tar", "-xzf", file, "-C", folder]);
  } finally {
    rmSync(file, { force: true });
  }
}

/** Passes the response on, and reports the progress after each tenth of its body. */
function withProgress(response: Response, say: (text: string) => void): Response {
  const total = Number(response.headers.get("content-length"));
  let [bytes, tenths] = [0, 0];
  const count = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.length;
      if (total > 0 && bytes >= ((tenths + 1) * total) / 10) {
        tenths = Math.floor((10 * bytes) / total);
        say(`${tenths * 10} % of ${Math.round(total / 2 ** 20)} MiB`);
      }
      controller.enqueue(chunk);
    },
  });
  return new Response(response.body!.pipeThrough(count));
}

async function fromWheel({ python, gpu, folder, say }: Sources): Promise<void> {
  const name = gpu ? "tensorflow" : "tensorflow-cpu";
  say(`downloading the wheel of ${name} with pip`);
  await unpackWheel(python, { name }, folder);
  const unpacked = join(folder, "tensorflow");
  const libraries = readdirSync(unpacked).filter((file) => /^libtensorflow_(cc|framework)\./.test(file));
  mkdirSync(join(folder, "lib"), { recursive: true });
  for (const file of libraries) renameSync(join(unpacked, file), join(folder, "lib", file));
}
