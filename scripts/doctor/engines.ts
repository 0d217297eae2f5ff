/** Checks which compute engines and devices a run can use, by letting each compute a known result. */
import { nvidiaGpus } from "../../actors/engine/choice.ts";
import { messageOf } from "../../actors/errors.ts";
import type { Engine } from "../../model/engine/engine.ts";
import type { Finding } from "./finding.ts";

/** [[1 2] [3 4]] times [[5 6] [7 8]]. */
const PRODUCT = [19, 22, 43, 50];

export async function compiledFinding(): Promise<Finding> {
  const name = "engine compiled";
  try {
    const { compiledEngine } = await import("../../model/engine/compiled.ts");
    return await multiplies(name, compiledEngine({ threads: 1 }), "the default without an NVIDIA GPU");
  } catch (error) {
    const found = `onnxruntime does not run: ${messageOf(error)}`;
    return {
      name,
      state: "broken",
      found,
      means: "the default without an NVIDIA GPU; --engine eager works without it, far slower",
    };
  }
}

export async function deviceFinding(device: "webgpu" | "cuda"): Promise<Finding> {
  const name = `engine compiled, ${device}`;
  const flags = device === "webgpu" ? "--device webgpu" : "--engine compiled --device cuda";
  const { compiledEngine } = await import("../../model/engine/compiled.ts");
  const { deviceCheck } = await import("../../model/engine/device-check.ts");
  let engine: ReturnType<typeof compiledEngine>;
  try {
    engine = compiledEngine({ threads: 1, device });
  } catch (error) {
    return {
      name,
      state: "absent",
      found: messageOf(error),
      means: `a run refuses ${flags}; the CPU does not need it`,
    };
  }
  try {
    const fallbacks = await deviceCheck(engine);
    const found = `${engine.device}: computes a gradient and a decoding step like the CPU; ${fallbacks}`;
    return { name, state: "ok", found, means: flags };
  } catch (error) {
    return { name, state: "broken", found: messageOf(error), means: `do not use ${flags}` };
  }
}

export async function eagerFinding(): Promise<Finding> {
  const name = "engine eager";
  try {
    const { eagerEngine } = await import("../../model/engine/eager.ts");
    return await multiplies(name, eagerEngine(), "--engine eager: slow, for checks");
  } catch (error) {
    const found = `TensorFlow.js does not run: ${messageOf(error)}`;
    return { name, state: "broken", found, means: "no engine works without it; run `bun run setup --again`" };
  }
}

async function multiplies(name: string, engine: Engine, means: string, prefix = ""): Promise<Finding> {
  const got = await multiply(engine);
  const right = got.join() === PRODUCT.join();
  const found = `${prefix}${engine.device}: ${right ? "multiplies two matrices correctly" : `computes ${got}, not ${PRODUCT}`}`;
  return { name, state: right ? "ok" : "broken", found, means: right ? means : "its numbers are wrong; do not use it" };
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

export async function libtensorflowFinding(): Promise<Finding> {
  const name = "engine tensorflow";
  const { findLibtensorflow, PLACES_IN_WORDS, placesOf } = await import("../../model/engine/tensorflow/find.ts");
  try {
    const path = findLibtensorflow(placesOf(process.env));
    if (path === null) {
      const means = "engine compiled does not need it; for an NVIDIA GPU get it: bun run setup tensorflow";
      return { name, state: "absent", found: `no libtensorflow in ${PLACES_IN_WORDS}`, means };
    }
    const { tensorflowEngine } = await import("../../model/engine/tensorflow.ts");
    const engine = tensorflowEngine(path, { threads: 1, device: "auto" });
    return await multiplies(name, engine, "--engine tensorflow", `${path}: `);
  } catch (error) {
    return { name, state: "broken", found: messageOf(error), means: "engine compiled does not need it" };
  }
}

export function nvidiaFinding(): Finding {
  const name = "NVIDIA GPU";
  const gpus = nvidiaGpus().map(({ name, memory, driver }) => `${name}, ${memory}, driver ${driver}`);
  if (gpus.length > 0) {
    return { name, state: "ok", found: gpus.join("; "), means: "engines with device cuda or webgpu can use it" };
  }
  return { name, state: "absent", found: "nvidia-smi is missing or lists none", means: "everything runs on the CPU" };
}
