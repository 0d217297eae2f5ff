/** What benches share: the reference model, the options, the programs of the peers, and the rows of the table that a bench prints. */
import { join } from "node:path";
import type { Device } from "../model/engine/engine.ts";
import type { Bfloat16Products } from "../model/engine/trace.ts";
import { ModelConfig } from "../model/policy/model-config.ts";

/** The default model of the benches `step` and `decode`. Each number is an option. The benches' figures in docs/log.md are for this model. */
export const REFERENCE = { d: 128, layers: 4, heads: 4, kvHeads: 4, hidden: 352, vocabulary: 256 };

const DEVICES = ["cpu", "cuda", "webgpu"] as const satisfies Device[];

const BFLOAT16_PRODUCTS = ["none", "gradients", "all"] as const satisfies Bfloat16Products[];

/** Options that are not numbers, for benches that compute on a device. */
export const ENGINE_OPTIONS = ["python", "device", "bfloat16Products"];

/** The device, and the products whose factors Bunraku rounds. Default: cpu, none. @throws {RangeError} naming the values of an option */
export const engineOf = (options: Readonly<Record<string, string>>) => ({
  device: choiceOf("device", DEVICES, options["device"]),
  bfloat16Products: choiceOf("bfloat16Products", BFLOAT16_PRODUCTS, options["bfloat16Products"]),
});

/** @param wanted  default: the first choice */
function choiceOf<T extends string>(name: string, choices: readonly [T, ...T[]], wanted: string = choices[0]): T {
  const choice = choices.find((value) => value === wanted);
  if (choice === undefined) throw new RangeError(`${name} must be one of ${choices.join(", ")}, got "${wanted}"`);
  return choice;
}

/** The rounding, for the name of a measurement. */
export const roundingInWords = (rounded: Bfloat16Products): string =>
  ({ none: "", gradients: ", gradients' products in bfloat16", all: ", products in bfloat16" })[rounded];

/** The device as an argument of the peers. PyTorch has no webgpu and uses cuda instead. */
export const peerDevice = (device: Device): string[] => ["--device", device === "cpu" ? "cpu" : "cuda"];

/**
 * The numeric options. An option that is left out has its default.
 *
 * @param words  options that are not numbers, which the caller reads.
 * @throws {RangeError} naming an option that is unknown or not a whole number of at least 1.
 */
export function numbersOf<T extends Record<string, number>>(
  bench: string,
  defaults: T,
  options: Readonly<Record<string, string>>,
  words: readonly string[] = ["python"],
): { readonly [K in keyof T]: number } {
  const numbers: Record<string, number> = { ...defaults };
  for (const [name, text] of Object.entries(options)) {
    if (words.includes(name)) continue;
    if (!Object.hasOwn(defaults, name)) {
      const known = [...Object.keys(defaults), ...words].join(", ");
      throw new RangeError(`bench ${bench} has no option ${name}; its options are ${known === "" ? "none" : known}`);
    }
    const value = Number(text);
    if (!Number.isInteger(value) || value < 1)
      throw new RangeError(`${bench}.${name} must be a whole number of at least 1, got "${text}"`);
    numbers[name] = value;
  }
  return numbers as { [K in keyof T]: number };
}

export function referenceModel({ d, layers, heads, kvHeads, hidden, vocabulary }: typeof REFERENCE): ModelConfig {
  return ModelConfig.parse({
    vocabulary,
    layers,
    heads,
    kvHeads,
    hidden,
    width: d,
    headWidth: d / heads,
    tiedEmbedding: false,
  });
}

/** The model as arguments of bench/peers/step.py and decode.py. */
export function peerArguments({ d, layers, heads, kvHeads, hidden, vocabulary }: typeof REFERENCE): string[] {
  const named = { d, layers, heads, "kv-heads": kvHeads, hidden, vocab: vocabulary };
  return flagsOf(named);
}

/** Values as arguments of a peer: --NAME VALUE. */
export const flagsOf = (values: Readonly<Record<string, string | number>>): string[] =>
  Object.entries(values).flatMap(([name, value]) => [`--${name}`, String(value)]);

/** The Python of the peers: option `python`, else BUNRAKU_PYTHON, else python3. */
export const pythonOf = (options: Readonly<Record<string, string>>): string =>
  options["python"] ?? process.env["BUNRAKU_PYTHON"] ?? "python3";

/** @throws {Error} saying what to install, if this Python lacks a module. */
export async function checkPython(python: string, modules: readonly string[]): Promise<void> {
  const ask = `import importlib.util, sys; print(*[m for m in sys.argv[1:] if importlib.util.find_spec(m) is None])`;
  const how =
    "see bench/peers/README.md: python3 -m venv DIR, DIR/bin/pip install torch transformers safetensors numpy";
  const found = Bun.which(python);
  if (found === null)
    throw new Error(`there is no Python called ${python}; ${how}, then set BUNRAKU_PYTHON=DIR/bin/python`);
  const missing = (await output([found, "-c", ask, ...modules])).trim();
  if (missing !== "")
    throw new Error(`${python} lacks ${missing}, which the peer needs; ${how}, then set BUNRAKU_PYTHON=DIR/bin/python`);
}

/** Runs a program of bench/peers. @returns the object on its last line. */
export async function runPeer<T>(python: string, script: string, args: readonly string[]): Promise<T> {
  const text = await output([python, join(import.meta.dir, "peers", script), ...args]);
  return JSON.parse(text.trim().split("\n").at(-1)!) as T;
}

/** Runs a command. @returns its standard output. @throws {Error} with its standard error if it fails */
export async function output(command: readonly string[]): Promise<string> {
  const child = Bun.spawn([...command], { stdio: ["ignore", "pipe", "pipe"] });
  const [text, errors, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`${command.slice(0, 2).join(" ")} ended with ${child.signalCode ?? code}: ${errors}`);
  return text;
}

/** One row of the table that `bun run bench` ends with. */
export interface Comparison {
  readonly what: string;
  /** Figures with their units. */
  readonly ours: string;
  readonly reference: string;
  /** Bunraku's speed divided by the speed of the peer or the limit. Above 1, Bunraku is faster. */
  readonly speed: number;
  /** The lowest `speed` with which Bunraku reaches its goal. */
  readonly goal: number;
}

export const round = (value: number, digits = 1): number => Number(value.toFixed(digits));
