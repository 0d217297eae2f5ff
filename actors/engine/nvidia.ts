/** The NVIDIA GPUs of this machine, as nvidia-smi lists them. */

export interface NvidiaGpu {
  readonly name: string;
  /** As "143771 MiB". */
  readonly memory: string;
  readonly driver: string;
}

const TIMEOUT_MS = 10_000;

/** Empty if nvidia-smi is missing or fails. */
export function nvidiaGpus(): NvidiaGpu[] {
  const program = Bun.which("nvidia-smi");
  if (program === null) return [];
  const query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"];
  const asked = Bun.spawnSync([program, ...query], { timeout: TIMEOUT_MS });
  if (asked.exitCode !== 0) return [];
  const lines = asked.stdout.toString().split("\n");
  return lines
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [name = "", memory = "", driver = ""] = line.split(",").map((part) => part.trim());
      return { name, memory, driver };
    });
}
