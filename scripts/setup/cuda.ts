/**
 * Downloads onnxruntime's CUDA provider for engine compiled, and the NVIDIA libraries of CUDA 13 that the provider needs and this machine
 * lacks. All these files are in Python wheels. The machine must have the GPU's driver already. Compiles nothing.
 */
import { existsSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { machineHasNvidia, nvidiaFolder } from "../../model/engine/cuda.ts";
import { libraryFolder } from "../../model/engine/onnxruntime.ts";
import { inPending, unpackWheel, type Wheel } from "./wheel.ts";

export interface CudaWheel extends Wheel {
  readonly version: string;
  readonly sha256: string;
  /** The libraries' folder in the wheel. */
  readonly inside: string;
  /** The libraries' sizes in bytes by their names. A file with a different size belongs to a different version. */
  readonly libraries: Readonly<Record<string, number>>;
  /** Target folder. */
  readonly folder: string;
  /** True if the machine's own libraries of these names may take the place of the wheel's libraries. */
  readonly machineMayHave: boolean;
}

/** There is a wheel of the provider for each version of Python. The provider does not use Python, so one wheel serves all versions. */
const PYTHON = ["--implementation", "cp", "--python-version", "3.12"];
/** Wheels for glibc 2.28 or older. */
const PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64"];
const options = [...PYTHON, ...PLATFORMS.flatMap((platform) => ["--platform", platform])];
const nvidia = { options, inside: "nvidia/cu13/lib", folder: nvidiaFolder, machineMayHave: true };

/** The provider has onnxruntime-node's version. NVIDIA's wheels are of CUDA 13.0, which needs the driver R580 or newer. */
export const CUDA_WHEELS: readonly CudaWheel[] = [
  {
    ...nvidia,
    name: "nvidia-cuda-runtime",
    version: "13.0.96",
    sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    libraries: { "libcudart.so.13": 704_288 },
  },
  {
    ...nvidia,
    name: "nvidia-cublas",
    version: "13.0.2.14",
    sha256: "0cf238ffdbe46c00cb9aa98e7bca745c223a5ca5a53e686ac8b3e5a08fe80d6c",
    libraries: { "libcublasLt.so.13": 539_533_072, "libcublas.so.13": 54_440_120 },
  },
  {
    ...nvidia,
    name: "nvidia-curand",
    version: "10.4.0.35",
    sha256: "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
    libraries: { "libcurand.so.10": 132_698_328 },
  },
  {
    name: "onnxruntime-gpu",
    version: "1.30.0",
    sha256: "6acc0f4b3d5ac5f2984432faa59dd8fcce6775f8b43a7140afa0f322c7a703b1",
    options,
    inside: "onnxruntime/capi",
    libraries: { "libonnxruntime_providers_shared.so": 14_632, "libonnxruntime_providers_cuda.so": 272_049_904 },
    folder: libraryFolder(),
    machineMayHave: false,
  },
];

/** Why this machine cannot use the libraries; null if it can. */
export function missingForCuda(platform: string = process.platform, arch: string = process.arch): string | null {
  if (platform === "linux" && arch === "x64") return null;
  return `setup cuda is for Linux on x64; this machine is ${platform} on ${arch}`;
}

/**
 * Downloads what is missing.
 *
 * @param python  a Python with pip
 * @param machineHas  whether the machine has libraries with these names
 * @throws {Error} in one line.
 */
export async function setUpCuda(
  wheels: readonly CudaWheel[],
  python: string,
  say: (text: string) => void,
  machineHas: (names: readonly string[]) => boolean = machineHasNvidia,
): Promise<void> {
  const missing = wheels.filter((wheel) => {
    return !isThere(wheel) && !(wheel.machineMayHave && machineHas(Object.keys(wheel.libraries)));
  });
  if (missing.length === 0) say("found; nothing to download");
  for (const [i, wheel] of missing.entries()) {
    say(`downloading wheel ${i + 1} of ${missing.length} with pip: ${wheel.name} ${wheel.version}`);
    const { folder, inside, libraries, name } = wheel;
    await inPending(folder, async (pending) => {
      await unpackWheel(python, wheel, pending);
      const files = Object.keys(libraries);
      const lack = files.find((file) => !existsSync(join(pending, inside, file)));
      if (lack !== undefined) throw new Error(`the wheel of ${name} has no ${inside}/${lack}`);
      for (const file of files) renameSync(join(pending, inside, file), join(folder, file));
    });
  }
}

const isThere = ({ folder, libraries }: CudaWheel): boolean =>
  Object.entries(libraries).every(([file, bytes]) => {
    return statSync(join(folder, file), { throwIfNoEntry: false })?.size === bytes;
  });
