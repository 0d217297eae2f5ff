/** Devices of the compiled engine: whether each exists, and its name. */
import { expectCudaProvider } from "./cuda.ts";
import type { Device } from "./engine.ts";
import { lackOfBfloat16 } from "./native/machine.ts";
import type { GradientProducts } from "./trace.ts";
import { vulkanAdapters, webgpuAdapter } from "./vulkan.ts";

export interface DeviceOptions {
  /** Allow webgpu on a software driver. */
  readonly softwareAdapter?: boolean;
  /** On cuda, round the factors of products to 10 bits of mantissa. Default: false. */
  readonly tf32?: boolean;
  /** bfloat16: on the CPU, lanes round the factors of `gradientProduct` (policy/ops.ts) if its sizes are multiples of 16. Default: float32. */
  readonly gradientProducts?: GradientProducts;
  /** Threads on the CPU. */
  readonly threads: number;
}

/** @throws {Error} if this machine does not multiply bfloat16 */
function productsInWords(products: GradientProducts): string {
  if (products === "float32") return "";
  const lack = lackOfBfloat16();
  if (lack === null) return ", products of gradients in bfloat16";
  throw new Error(`engine.gradientProducts bfloat16 needs ${lack}; use float32`);
}

/** The device in words. @throws {Error} if the device is missing, or cannot compute `gradientProducts`. */
export function deviceInWords(
  device: Device,
  { threads, softwareAdapter = false, tf32 = false, gradientProducts = "float32" }: DeviceOptions,
): string {
  switch (device) {
    case "cpu":
      return `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}${productsInWords(gradientProducts)}`;
    case "webgpu":
      return `webgpu, ${webgpuAdapter(process.platform === "linux" ? vulkanAdapters() : null, softwareAdapter)}`;
    case "cuda":
      expectCudaProvider();
      return `cuda, onnxruntime's provider${tf32 ? ", TF32" : ""}`;
    default:
      return device satisfies never;
  }
}
