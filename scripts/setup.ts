/**
 * `bun run setup` installs the dependencies of a clone, as every command also does. In an installed package the command only checks them.
 *
 * - `setup cuda` also downloads what engine compiled needs for an NVIDIA GPU.
 * - `setup tensorflow` also downloads libtensorflow, unless this machine has it.
 * - `setup tinker` also installs a server of Tinker's protocol, and runs it until a stop signal arrives or the server ends.
 */
import { rmSync } from "node:fs";
import { join, relative } from "node:path";
import { freePort } from "../actors/dashboard/port.ts";
import { nvidiaGpus } from "../actors/engine/choice.ts";
import { DriverError, expectCudaProvider } from "../model/engine/cuda.ts";
import { install, isPackage } from "./cli/install.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { stopSignal } from "./cli/stop-signals.ts";
import { packages } from "./doctor/findings.ts";
import { CUDA_WHEELS, missingForCuda, setUpCuda } from "./setup/cuda.ts";
import { officialSources, setUpTensorflow } from "./setup/tensorflow.ts";
import { setUpTinker, startTinkerServer, tinkerPlaces } from "./setup/tinker.ts";

const root = join(import.meta.dir, "..");

export const command = {
  words: {
    show: "[cuda|tensorflow|tinker]",
    text: "cuda: download onnxruntime's libraries for an NVIDIA GPU; tensorflow: download libtensorflow, for an NVIDIA GPU if there is one; tinker: install and run a server for --engine tinker",
    max: 1,
  },
  flags: {
    again: flag.switch("Install again, even if the packages match the lock file"),
    port: flag.port("N", "tinker: port of the server (default: 8801); 0 for any free port"),
  },
  examples: [
    "bun run setup",
    "bun run setup --again",
    "bun run setup cuda",
    "bun run setup tensorflow",
    "bun run setup tinker",
  ],
} as const satisfies Command;

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const [what] = words;
  if (what !== undefined && what !== "cuda" && what !== "tensorflow" && what !== "tinker") {
    throw new UsageError(`setup does not know "${what}"; it takes cuda, tensorflow or tinker`);
  }
  const lack = what === "cuda" ? missingForCuda() : null;
  if (lack !== null) throw new UsageError(lack);
  if (flags.port !== undefined && what !== "tinker")
    throw new UsageError("--port is the port of the tinker server; use it with setup tinker");
  if (flags.again) {
    if (isPackage)
      throw new UsageError("--again is for a clone; here your project installs Bunraku: run `bun install` in it");
    rmSync(join(root, "node_modules", ".bunraku", "installed"), { force: true });
    await install(root);
  }
  const { state, found, means } = packages(root);
  if (state !== "ok") throw new Error(`${found}; ${means}`);
  console.log(`packages: ${found}; ${means}`);
  if (what === undefined) return 0;
  if (what === "tinker") return serveTinker(flags.port ?? 8801);
  if (what === "cuda") {
    await setUpCuda(CUDA_WHEELS, "python3", (text) => console.error(`cuda: ${text}`));
    console.log(`cuda: ${cudaState()}`);
    return 0;
  }
  const gpu = nvidiaGpus().length > 0;
  const path = await setUpTensorflow(officialSources(gpu, (text) => console.error(`tensorflow: ${text}`)));
  console.log(`tensorflow: ${path}`);
  return 0;
}

/** Whether the driver can run the libraries, in words. @throws {Error} if a library does not load */
function cudaState(): string {
  try {
    expectCudaProvider();
  } catch (error) {
    if (error instanceof DriverError) return `installed; ${error.message}`;
    throw error;
  }
  return "installed, and the driver is new enough; bun run doctor checks the GPU";
}

async function serveTinker(wanted: number): Promise<number> {
  // The server would notice only late that another program has the port. Until then this command would take the other program's answers for the
  // server's.
  const port = await freePort("the tinker server", "127.0.0.1", wanted);
  const places = tinkerPlaces(join(root, "node_modules", ".bunraku", "tinker"));
  await setUpTinker(places, (text) => console.error(`tinker: ${text}`));
  const server = await startTinkerServer(places, port);
  process.on("exit", () => server.kill("SIGKILL"));
  console.log(`tinker: ${server.url} serves a tiny Qwen3 until Ctrl-C. In another terminal:`);
  console.log(
    `bun run cluster --preset tinker-bandit --engine.url=${server.url} --model ${relative(".", places.model)}`,
  );
  const ended = new Promise<number>((resolve) => server.process.once("exit", (code) => resolve(code ?? 1)));
  const stopped = stopSignal().then(() => 0);
  const code = await Promise.race([ended, stopped]);
  server.kill("SIGTERM");
  await ended;
  return code;
}
