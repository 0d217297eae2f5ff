/**
 * The GPUs that Vulkan lists. On Linux onnxruntime's WebGPU runs on Vulkan. WebGPU does not name its adapter. If Vulkan lists no GPU, WebGPU
 * silently takes a software driver.
 * Source: vulkan_core.h (VkInstanceCreateInfo, VkPhysicalDeviceProperties).
 */
import { dlopen, type Pointer, ptr } from "bun:ffi";

/** VkPhysicalDeviceType, by number. */
const KINDS = ["other", "integrated", "discrete", "virtual", "software"] as const;

export interface Adapter {
  readonly name: string;
  readonly kind: (typeof KINDS)[number];
}

const LOADER = "libvulkan.so.1";
/** VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO. */
const INSTANCE_CREATE_INFO = 1;
const INSTANCE_CREATE_INFO_BYTES = 64;
const PROPERTIES_BYTES = 824;
/** Places in the properties: an index of `KINDS`, and a zero-ended text. */
const KIND_OFFSET = 16;
const NAME = { offset: 20, bytes: 256 };
const ADAPTERS_MAX = 16;

/** @throws {Error} if Vulkan or its driver is missing. */
export function vulkanAdapters(): Adapter[] {
  const { symbols: vulkan } = load();
  const create = new Uint32Array(INSTANCE_CREATE_INFO_BYTES / 4);
  create[0] = INSTANCE_CREATE_INFO;
  const instance = new BigUint64Array(1);
  const made = vulkan.vkCreateInstance(ptr(create), null, ptr(instance));
  if (made !== 0)
    throw new Error(`device webgpu: Vulkan finds no driver (vkCreateInstance gives ${made}); install the GPU's driver`);
  const handle = Number(instance[0]) as Pointer;
  try {
    const count = Uint32Array.of(ADAPTERS_MAX);
    const devices = new BigUint64Array(ADAPTERS_MAX);
    const listed = vulkan.vkEnumeratePhysicalDevices(handle, ptr(count), ptr(devices));
    // 0 means success, 5 that there are more devices. If the process may open no device, the driver returns an error and no handles.
    if (listed !== 0 && listed !== 5) return [];
    return Array.from(devices.subarray(0, count[0]), (device) => {
      const properties = new Uint8Array(PROPERTIES_BYTES);
      vulkan.vkGetPhysicalDeviceProperties(Number(device) as Pointer, ptr(properties));
      const name = properties.subarray(NAME.offset, NAME.offset + NAME.bytes);
      const text = new TextDecoder().decode(name.subarray(0, name.indexOf(0)));
      return { name: text, kind: KINDS[new DataView(properties.buffer).getUint32(KIND_OFFSET, true)] ?? "other" };
    });
  } finally {
    vulkan.vkDestroyInstance(handle, null);
  }
}

function load() {
  try {
    return dlopen(LOADER, {
      vkCreateInstance: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
      vkEnumeratePhysicalDevices: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
      vkGetPhysicalDeviceProperties: { args: ["ptr", "ptr"], returns: "void" },
      vkDestroyInstance: { args: ["ptr", "ptr"], returns: "void" },
    });
  } catch (error) {
    throw new Error(
      `device webgpu: ${LOADER} does not load (${(error as Error).message}); install Vulkan's loader (Debian: libvulkan1) and the GPU's driver`,
    );
  }
}

/**
 * The adapter that WebGPU takes for high performance: the first in the order of Dawn, onnxruntime's WebGPU library.
 *
 * @param adapters  null where the system does not list them: macOS (Metal) and Windows (Direct3D).
 * @returns a text for the log: the adapter's name, and ", software" if it is a software driver
 * @throws {Error} if there is no adapter, or only a software driver and `softwareAllowed` is false.
 */
export function webgpuAdapter(adapters: readonly Adapter[] | null, softwareAllowed: boolean): string {
  if (adapters === null) return "an adapter that the system does not name";
  const ranked = ["discrete", "integrated", "software", "virtual", "other"] as const satisfies Adapter["kind"][];
  const [taken] = adapters.toSorted((a, b) => ranked.indexOf(a.kind) - ranked.indexOf(b.kind));
  if (taken === undefined) throw new Error("device webgpu: Vulkan lists no GPU; install its driver");
  if (taken.kind !== "software") return taken.name;
  if (softwareAllowed) return `${taken.name}, software`;
  throw new Error(
    `device webgpu: Vulkan lists no GPU, only ${taken.name}, which is software; choose --device cpu, or allow it with --engine.softwareAdapter=true`,
  );
}
