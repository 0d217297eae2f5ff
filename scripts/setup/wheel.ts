/** Python wheels as archives of native libraries. pip downloads them, because pip knows this machine's package index and proxy. */
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

export interface Wheel {
  readonly name: string;
  /** Default: the newest version for this Python. */
  readonly version?: string;
  /** In hex. Default: not checked. */
  readonly sha256?: string;
  /** Options of pip that choose among the wheels of a version. */
  readonly options?: readonly string[];
}

/**
 * Downloads a wheel and unpacks it. pip shows the progress on standard error.
 *
 * @param python  a Python with pip
 * @param folder  an empty folder
 * @throws {Error} in one line.
 */
export async function unpackWheel(python: string, wheel: Wheel, folder: string): Promise<void> {
  const { name, version, sha256, options = [] } = wheel;
  if (Bun.which(python) === null)
    throw new Error(`${python} is missing; it is needed to download the wheel of ${name}`);
  const wanted = version === undefined ? name : `${name}==${version}`;
  const download = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", folder, wanted];
  await run([...download, "--disable-pip-version-check", ...options], 2);
  const file = readdirSync(folder).find((one) => one.endsWith(".whl"));
  if (file === undefined) throw new Error(`pip downloaded no wheel of ${name}`);
  const path = join(folder, file);
  if (sha256 !== undefined) {
    const got = await digest(path);
    if (got !== sha256) throw new Error(`the wheel ${file} has the SHA-256 hash ${got}, not ${sha256}`);
  }
  await run([python, "-m", "zipfile", "-e", path, folder]);
  rmSync(path);
}

/**
 * Calls `make` with an empty folder in `folder`, and then removes this folder. A file in the target folder counts as complete, so only a rename
 * puts a library there.
 */
export async function inPending(folder: string, make: (pending: string) => Promise<void>): Promise<void> {
  const pending = join(folder, ".writing");
  try {
    rmSync(pending, { recursive: true, force: true });
    mkdirSync(pending, { recursive: true });
    await make(pending);
  } finally {
    rmSync(pending, { recursive: true, force: true });
  }
}

/** SHA-256 of a file in hex. */
async function digest(path: string): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  for await (const chunk of Bun.file(path).stream()) hasher.update(chunk);
  return hasher.digest("hex");
}

/** @param output  where standard output goes; 2 is standard error. @throws {Error} if the program fails, with the last line of its standard error. */
export async function run(argv: readonly string[], output: "ignore" | 2 = "ignore"): Promise<void> {
  const child = Bun.spawn([...argv], { stdio: ["ignore", output, "pipe"] });
  const [text, code] = await Promise.all([child.stderr.text(), child.exited]);
  if (code !== 0)
    throw new Error(`${argv.slice(0, 4).join(" ")} ended with ${code}: ${text.trim().split("\n").at(-1)}`);
}
