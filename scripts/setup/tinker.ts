/**
 * A server of Tinker's protocol on this machine: skyrl-tx with jax on the CPU, in a Python environment of its own, and a tiny model for it.
 *
 * - skyrl-tx needs one class of peft, which writes a description of adapters. peft itself needs torch, which takes 6 GB. So a small module
 *   named peft has this class instead.
 * - skyrl-tx starts its engine by `uv run … -m MODULE`. A script named uv runs the environment's own Python instead.
 * - skyrl-tx unpacks its own files with an argument that Python 3.11.2 of Debian 12 does not know. A module that each start of Python
 *   imports removes the argument.
 * - The database waits up to 120 s for a lock. With SQLite's default of 5 s, the server ends on a busy machine.
 */
import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { writeTinyModel } from "./tiny-model.ts";
import { run } from "./wheel.ts";

const SKYRL_TX = "skyrl-tx==0.3.0";
/** What skyrl-tx's server and jax engine import. */
const PACKAGES = [
  "jax==0.10.2",
  "flax==0.12.8",
  "optax==0.2.8",
  "transformers==4.57.6",
  "safetensors==0.8.0",
  "fastapi==0.165.0",
  "uvicorn==0.54.0",
  "sqlmodel==0.0.50",
  "sqlalchemy[asyncio]==2.1.9",
  "aiosqlite==0.22.1",
  "cloudpathlib==0.26.0",
  "httpx==0.28.1",
  "rich==15.0.0",
];

const PEFT = `"""The part of peft that skyrl-tx uses."""
import json, os

class LoraConfig:
    def __init__(self, **settings):
        self.settings = {"peft_type": "LORA", **settings}

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "adapter_config.json"), "w") as file:
            json.dump(self.settings, file, default=str)
`;

const TARFILE = `"""Makes TarFile.extractall of Python before 3.11.4 accept and ignore the argument filter. The tar files are the server's own."""
import tarfile

if not hasattr(tarfile, "data_filter"):
    plain = tarfile.TarFile.extractall
    tarfile.TarFile.extractall = lambda self, *places, filter=None, **named: plain(self, *places, **named)
`;
/** Files by name. Python runs the import lines of a .pth file each time it starts. */
const MODULES = { "peft.py": PEFT, "bunraku_tarfile.py": TARFILE, "bunraku_tarfile.pth": "import bunraku_tarfile\n" };

/**
 * Limits of the server. The last two limits give its batches constant sizes. Without them the server would compile its functions for each new size.
 */
const BACKEND_LIMITS = {
  max_lora_adapters: 8,
  max_lora_rank: 32,
  sample_max_num_sequences: 32,
  train_micro_batch_size: 32,
};
const READY_MS = 120_000;

/** @param folder  folder of the server's database, checkpoints and log */
export const tinkerPlaces = (folder: string) => ({
  folder,
  /** The Python of an environment with skyrl-tx. */
  python: join(folder, "venv", "bin", "python"),
  model: join(folder, "model"),
  /** Folder in which the server keeps compiled functions for later servers. */
  compiled: join(folder, "compiled"),
});
type TinkerPlaces = ReturnType<typeof tinkerPlaces>;

/** Installs what is missing. @throws {Error} in one line */
export async function setUpTinker({ folder, python, model }: TinkerPlaces, say: (text: string) => void): Promise<void> {
  const installed = join(folder, "installed");
  // After an upgrade of the system's Python, the environment's Python may be missing.
  if (!existsSync(installed) || !existsSync(python)) {
    say(`installing ${SKYRL_TX} and ${PACKAGES.length} packages with pip`);
    mkdirSync(folder, { recursive: true });
    await run(["python3", "-m", "venv", join(folder, "venv")]);
    // The check of pip's own version writes its notice after pip's error.
    const install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    await run([...install, ...PACKAGES]);
    await run([...install, "--no-deps", SKYRL_TX]);
    const script =
      "import pathlib, site, sys; pathlib.Path(site.getsitepackages()[0], sys.argv[1]).write_text(sys.argv[2])";
    for (const [name, text] of Object.entries(MODULES)) await run([python, "-c", script, name, text]);
    writeFileSync(installed, `${SKYRL_TX}\n`);
  }
  if (!existsSync(model)) await writeTinyModel(model);
}

/**
 * Starts the server. A later server in this folder continues from the checkpoints there.
 *
 * @returns the server's process, and `kill`, which also ends its engine
 * @throws {Error} if the server does not answer within two minutes.
 */
export async function startTinkerServer({ folder, python, model, compiled }: TinkerPlaces, port: number) {
  const bin = join(folder, "bin");
  mkdirSync(bin, { recursive: true });
  const uv = join(bin, "uv");
  writeFileSync(uv, `#!/bin/sh\nwhile [ "$1" != "-m" ]; do shift; done\nexec "${python}" "$@"\n`);
  chmodSync(uv, 0o755);
  const log = join(folder, "server.log");
  const file = openSync(log, "a");
  const args = ["-m", "tx.tinker.api", "--base-model", model, "--host", "127.0.0.1", "--port", String(port)];
  args.push("--checkpoints-base", join(folder, "checkpoints"), "--backend-config", JSON.stringify(BACKEND_LIMITS));
  const server = spawn(python, args, {
    // The server and its engine have a process group of their own, so that `kill` ends both.
    detached: true,
    stdio: ["ignore", file, file],
    env: {
      ...process.env,
      PATH: `${bin}${delimiter}${process.env["PATH"]}`,
      JAX_PLATFORMS: "cpu",
      JAX_COMPILATION_CACHE_DIR: compiled,
      JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS: "0",
      TX_DATABASE_URL: `sqlite:///${join(folder, "tx.db")}?timeout=120`,
    },
  });
  const url = `http://127.0.0.1:${port}`;
  const isRunning = () => server.exitCode === null && server.signalCode === null;
  const kill = (signal: NodeJS.Signals) => {
    if (isRunning()) process.kill(-server.pid!, signal);
  };
  const ended = new AbortController();
  server.once("exit", () => ended.abort());
  const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(READY_MS)]);
  for (; !signal.aborted; await Bun.sleep(200)) {
    const answer = await fetch(`${url}/api/v1/healthz`, { proxy: false as never, signal }).catch(() => null);
    if (answer?.ok) return { url, process: server, kill };
  }
  kill("SIGKILL");
  throw new Error(`skyrl-tx does not answer at ${url}; its log is ${log}`);
}
