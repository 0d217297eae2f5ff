/** Devices of the compiled engine: whether each exists, and its name. */
import { expectCudaProvider } from "./cuda.ts";
import type { Device } from "./engine.ts";
import { missingForBfloat16 } from "./native/machine.ts";
import type { Bfloat16Products } from "./trace.ts";
import { vulkanAdapters, webgpuAdapter } from "./vulkan.ts";

export interface DeviceOptions {
  /** Allow webgpu on a software driver. */
  readonly softwareAdapter?: boolean;
  /** On cuda, round the factors of products to 10 bits of mantissa. Default: false. */
  readonly tf32?: boolean;
  /** The products whose factors one thread of a CPU rounds to bfloat16, if a kernel takes their sizes (native/lowerings.ts). Default: none. */
  readonly bfloat16Products?: Bfloat16Products;
  /** Number of threads on the CPU. */
  readonly threads: number;
}

/** @throws {Error} if this machine does not multiply bfloat16 */
function productsInWords(products: Bfloat16Products): string {
  if (products === "none") return "";
  const lack = missingForBfloat16();
  if (lack === null) return `, products ${products === "all" ? "" : "of gradients "}in bfloat16`;
  throw new Error(`engine.bfloat16Products ${products} needs ${lack}; use none`);
}

/** The device in words. @throws {Error} if the device is missing, or cannot compute `bfloat16Products`. */
export function deviceInWords(
  device: Device,
  { threads, softwareAdapter = false, tf32 = false, bfloat16Products = "none" }: DeviceOptions,
): string {
  switch (device) {
    case "cpu":
      return `cpu, ${threads} ${threads === 1 ? "thread" : "threads"}${productsInWords(bfloat16Products)}`;
    case "webgpu":
      return `webgpu, ${webgpuAdapter(process.platform === "linux" ? vulkanAdapters() : null, softwareAdapter)}`;
    case "cuda":
      expectCudaProvider();
      return `cuda, onnxruntime's provider${tf32 ? ", TF32" : ""}`;
    default:
      return device satisfies never;
  }
}
