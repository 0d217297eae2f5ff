/** Which compute engines and devices a run could use. What is claimed to work is made to compute a known product. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Engine } from "../../model/engine/engine.ts";
import type { Finding } from "./finding.ts";

/** [[1 2] [3 4]] times [[5 6] [7 8]], worked by hand. */
const PRODUCT = [19, 22, 43, 50];

export async function compiledFinding(): Promise<Finding> {
  const name = "engine compiled";
  try {
    const { compiledEngine } = await import("../../model/engine/compiled.ts");
    const engine = compiledEngine({ threads: 1 });
    const got = await multiply(engine);
    if (got.join() !== PRODUCT.join()) {
      return {
        name,
        state: "broken",
        found: `computes ${got}, not ${PRODUCT}`,
        means: "do not trust any number from it",
      };
    }
    return {
      name,
      state: "ok",
      found: `onnxruntime multiplies two matrices right (${engine.device})`,
      means: "the default",
    };
  } catch (error) {
    const found = `onnxruntime does not run: ${error instanceof Error ? error.message : error}`;
    return { name, state: "broken", found, means: "the default engine; `--engine eager` works without, far slower" };
  }
}

async function multiply(engine: Engine): Promise<number[]> {
  const { matMul } = await import("@tensorflow/tfjs-core");
  const matrix = { shape: [2, 2], dtype: "float32" } as const;
  const compiled = await engine.compile("doctor", ({ a, b }) => ({ c: matMul(a!, b!) }), { a: matrix, b: matrix });
  const a = engine.array(matrix, Float32Array.of(1, 2, 3, 4));
  const b = engine.array(matrix, Float32Array.of(5, 6, 7, 8));
  const c = engine.array(matrix);
  await compiled.run({ a, b }, { c });
  const values = Array.from(c.read(), Number);
  await compiled.dispose();
  return values;
}

/** The addon of @tensorflow/tfjs-node-gpu: built by its post-install script, which is not run unless trusted. */
export function addonFinding(root: string): Finding {
  const folder = join(root, "node_modules", "@tensorflow", "tfjs-node-gpu", "lib");
  const found = existsSync(folder) ? [...new Bun.Glob("napi-v*/tfjs_binding.node").scanSync(folder)] : [];
  const name = "tfjs-node-gpu addon";
  if (found.length > 0) return { name, state: "ok", found: found.join(", "), means: "engine tensorflow can use it" };
  return {
    name,
    state: "absent",
    found: "not built",
    means: "only engine tensorflow would use it; compiled needs none",
  };
}

export async function libtensorflowFinding(root: string): Promise<Finding> {
  const name = "libtensorflow";
  const named = process.env["LIBTENSORFLOW_PATH"];
  if (named !== undefined && !existsSync(named)) {
    const found = `LIBTENSORFLOW_PATH names ${named}, which is not there`;
    return { name, state: "broken", found, means: "mend or unset it" };
  }
  const path = named ?? findLibrary(root) ?? (await findWheel());
  if (path !== null) return { name, state: "ok", found: path, means: "engine tensorflow can load it" };
  const found =
    "not in LIBTENSORFLOW_PATH, the package's deps/lib, the system's library folders or Python's tensorflow";
  return { name, state: "absent", found, means: "engine tensorflow is not to be had; compiled needs none" };
}

function findLibrary(root: string): string | null {
  const folders = [
    join(root, "node_modules/@tensorflow/tfjs-node-gpu/deps/lib"),
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
  ];
  const names = ["libtensorflow.so", "libtensorflow.so.2", "libtensorflow.dylib"];
  return folders.flatMap((folder) => names.map((name) => join(folder, name))).find((path) => existsSync(path)) ?? null;
}

/** Python's tensorflow package carries a library with the same C functions. Found without importing it: that takes seconds. */
async function findWheel(): Promise<string | null> {
  const ask =
    "import importlib.util as u; s = u.find_spec('tensorflow'); print(s.submodule_search_locations[0] if s else '')";
  const folder = (await output(["python3", "-c", ask]))?.trim();
  if (!folder) return null;
  const names = ["libtensorflow_cc.so.2", "libtensorflow_cc.2.dylib"];
  return names.map((name) => join(folder, name)).find((path) => existsSync(path)) ?? null;
}

export async function nvidiaFinding(): Promise<Finding> {
  const name = "NVIDIA GPU";
  const listed = await output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]);
  const found = listed?.trim().replaceAll("\n", "; ");
  if (found) return { name, state: "ok", found, means: "engine tensorflow, or --device webgpu or cuda, can use it" };
  return { name, state: "absent", found: "nvidia-smi is not there or lists none", means: "everything runs on the CPU" };
}

/** Standard output of a program; null if it cannot be started or fails. */
async function output(argv: string[]): Promise<string | null> {
  const program = Bun.which(argv[0]!);
  if (program === null) return null;
  const child = Bun.spawn([program, ...argv.slice(1)], { stdio: ["ignore", "pipe", "ignore"], timeout: 10_000 });
  const [text, code] = await Promise.all([child.stdout.text(), child.exited]);
  return code === 0 ? text : null;
}
