/** What a checkpoint's files say: bytes from a learner's state, and back. Knows no disk. */
import { z } from "zod";
import { huggingFaceViews, readHuggingFace } from "../model/checkpoint/hugging-face.ts";
import { checkTensors, readSafetensors, writeSafetensors } from "../model/checkpoint/safetensors.ts";
import type { AdamWState } from "../model/optimizer.ts";
import { layParameters, parameterCount } from "../model/parameters.ts";
import { ModelConfig } from "../model/transformer.ts";
import { checkJson, type Json } from "./checkpoint-json.ts";

/** A network and its optimiser. */
export interface SavedNetwork {
  readonly config: ModelConfig;
  /** In the order of `layParameters`. */
  readonly parameters: Float32Array;
  /** Moments as long as the parameters. */
  readonly optimizer: Readonly<AdamWState>;
}

export interface Checkpoint extends SavedNetwork {
  /** Updates done. */
  readonly update: number;
  readonly critic: SavedNetwork | null;
  /** The learner's own: counters, cursors, digests. */
  readonly state: Json;
}

const Head = z.strictObject({ config: ModelConfig, steps: z.int().nonnegative() });
type Head = z.infer<typeof Head>;
const StateFile = z.strictObject({
  format: z.literal(1),
  update: z.int().nonnegative(),
  policy: Head,
  critic: Head.nullable(),
  state: z.json(),
});

const STATE = "state.json";
const OPTIMIZER = "optimizer.safetensors";
const MOMENTS = ["moment", "variance"] as const;

/**
 * Files by name. Nothing of them shares memory with `checkpoint`.
 *
 * @throws {TypeError} naming what of `state` JSON cannot hold.
 * @throws {RangeError} if an array is not as long as its model has parameters.
 */
export function encodeCheckpoint(checkpoint: Checkpoint): ReadonlyMap<string, Uint8Array> {
  const { update, critic, state } = checkpoint;
  checkJson(state, "state");
  const head = ({ config, optimizer }: SavedNetwork) => ({ config, steps: optimizer.step });
  const text = JSON.stringify(
    {
      ...{ format: 1, update, policy: head(checkpoint) },
      ...{ critic: critic === null ? null : head(critic), state },
    } satisfies Omit<z.infer<typeof StateFile>, "state"> & { readonly state: Json },
    null,
    2,
  );
  const moments = [...momentTensors("policy", checkpoint), ...(critic === null ? [] : momentTensors("critic", critic))];
  const files = new Map([["policy.safetensors", encodeNetwork(checkpoint)]]);
  if (critic !== null) files.set("critic.safetensors", encodeNetwork(critic));
  files.set(OPTIMIZER, writeSafetensors(moments));
  files.set(STATE, new TextEncoder().encode(`${text}\n`));
  return files;
}

function encodeNetwork({ config, parameters }: SavedNetwork): Uint8Array {
  // "pt" is what Hugging Face's loaders ask for.
  return writeSafetensors(huggingFaceViews(config, layParameters(config, parameters)), { format: "pt" });
}

function momentTensors(name: "policy" | "critic", { parameters, optimizer }: SavedNetwork) {
  return MOMENTS.map((part) => {
    const { length } = optimizer[part];
    if (length !== parameters.length) {
      throw new RangeError(`the ${name} has ${parameters.length} parameters, its optimiser's ${part} ${length}`);
    }
    return [`${name}.${part}`, { shape: [length], values: optimizer[part] }] as const;
  });
}

/** @throws {Error} naming the file that is missing or does not say what it should. */
export function decodeCheckpoint(files: ReadonlyMap<string, Uint8Array>): Checkpoint {
  const file = (name: string) => {
    const bytes = files.get(name);
    if (bytes === undefined) throw new Error(`${name} is missing`);
    return bytes;
  };
  const head = StateFile.safeParse(JSON.parse(new TextDecoder().decode(file(STATE))));
  if (!head.success) throw new Error(`${STATE}: ${z.prettifyError(head.error).replaceAll("\n", " ")}`);
  const { update, policy, critic, state } = head.data;
  const moments = readSafetensors(file(OPTIMIZER), OPTIMIZER);
  const lengths = Object.entries({ policy, critic }).flatMap(([name, network]) =>
    network === null ? [] : MOMENTS.map((part) => [`${name}.${part}`, [parameterCount(network.config)]] as const),
  );
  checkTensors(moments, new Map(lengths));
  const network = (name: "policy" | "critic", { config, steps }: Head): SavedNetwork => {
    const parameters = layParameters(config);
    readHuggingFace(config, parameters, readSafetensors(file(`${name}.safetensors`), `${name}.safetensors`));
    const [moment, variance] = MOMENTS.map((part) => moments.tensors.get(`${name}.${part}`)!.values);
    return { config, parameters: parameters.flat, optimizer: { moment: moment!, variance: variance!, step: steps } };
  };
  return { update, ...network("policy", policy), critic: critic === null ? null : network("critic", critic), state };
}
