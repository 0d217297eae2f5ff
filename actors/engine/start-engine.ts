/** Starts the engine that choice.ts has chosen, in the caller's thread. */
import { type CompiledOptions, compiledEngine } from "../../model/engine/compiled.ts";
import type { Engine } from "../../model/engine/engine.ts";
import { selfCheck } from "../../model/engine/self-check.ts";

export type EngineSettings =
  | ({ readonly name: "compiled" } & Pick<
      CompiledOptions,
      "threads" | "device" | "softwareAdapter" | "tf32" | "bfloat16Products"
    >)
  | { readonly name: "eager"; readonly threads: number }
  | {
      readonly name: "tensorflow";
      readonly threads: number;
      /** Path of libtensorflow. */
      readonly library: string;
      readonly device: "auto" | "cpu" | "cuda";
    };

/** @throws {Error} if the device is missing, or computes wrong results. */
export async function startEngine(settings: EngineSettings): Promise<Engine> {
  if (settings.name === "compiled" && settings.device !== undefined) {
    const engine = compiledEngine(settings);
    await selfCheck(engine);
    const { deviceCheck } = await import("../../model/engine/device-check.ts");
    return { ...engine, device: `${engine.device}; ${await deviceCheck(engine, settings.tf32)}` };
  }
  const engine = await makeEngine(settings);
  await selfCheck(engine);
  return engine;
}

async function makeEngine(settings: EngineSettings): Promise<Engine> {
  switch (settings.name) {
    case "compiled":
      return compiledEngine(settings);
    // Import the next two engines here and not above: their packages are large, and few runs need them.
    case "eager":
      return (await import("../../model/engine/eager.ts")).eagerEngine();
    case "tensorflow": {
      const { tensorflowEngine } = await import("../../model/engine/tensorflow.ts");
      return tensorflowEngine(settings.library, settings);
    }
    default:
      return settings satisfies never;
  }
}
