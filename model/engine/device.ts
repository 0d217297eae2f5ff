/** Devices of the compiled engine: whether each exists, and its name. */
import { expectCudaProvider } from "./cuda.ts";
import type { Device } from "./engine.ts";
import { vulkanAdapters, webgpuAdapter } from "./vulkan.ts";

export interface DeviceOptions {
  /** Allow webgpu on a software driver. */
  readonly softwareAdapter?: boolean;
  /** Threads on the CPU. */
  readonly threads: number;
}

/** The device in words. @throws {Error} if it is missing. */
export function deviceInWords(device: Device, { threads, softwareAdapter = false }: DeviceOptions): string {
  switch (device) {
    case "cpu":
      return `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}`;
    case "webgpu":
      return `webgpu, ${webgpuAdapter(process.platform === "linux" ? vulkanAdapters() : null, softwareAdapter)}`;
    case "cuda":
      expectCudaProvider();
      return "cuda, onnxruntime's provider";
    default:
      return device satisfies never;
  }
}
