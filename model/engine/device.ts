/** Devices of the compiled engine: whether each exists, and its name. */
import { expectCudaProvider } from "./cuda.ts";
import type { Device } from "./engine.ts";
import { vulkanAdapters, webgpuAdapter } from "./vulkan.ts";

export interface DeviceOptions {
  /** Allow webgpu on a software driver. */
  readonly softwareAdapter?: boolean;
  /** On cuda, round the factors of products to 10 bits of mantissa. Default: false. */
  readonly tf32?: boolean;
  /** Threads on the CPU. */
  readonly threads: number;
}

/** The device in words. @throws {Error} if it is missing. */
export function deviceInWords(
  device: Device,
  { threads, softwareAdapter = false, tf32 = false }: DeviceOptions,
): string {
  switch (device) {
    case "cpu":
      return `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}`;
    case "webgpu":
      return `webgpu, ${webgpuAdapter(process.platform === "linux" ? vulkanAdapters() : null, softwareAdapter)}`;
    case "cuda":
      expectCudaProvider();
      return `cuda, onnxruntime's provider${tf32 ? ", TF32" : ""}`;
    default:
      return device satisfies never;
  }
}
