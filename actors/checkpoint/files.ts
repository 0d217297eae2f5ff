/** The format of a checkpoint's files: converts a learner's state to bytes, and back. Touches no disk. */
import { z } from "zod";
import { huggingFaceViews, readHuggingFace } from "../../model/checkpoint/hugging-face.ts";
import { checkTensors, readSafetensors, safetensorsParts } from "../../model/checkpoint/safetensors.ts";
import { ModelConfig } from "../../model/policy/model-config.ts";
import { layParameters, parameterCount } from "../../model/policy/parameters.ts";
import { messageOf, schemaFaults } from "../errors.ts";
import { checkJson } from "./json.ts";

/**
 * A network's parameters and optimizer state, as arrays in the order of `layParameters`. The trainer thread changes the arrays during an
 * update. Between updates the learner's main thread publishes and saves the arrays.
 */
export interface NetworkMemory {
  readonly parameters: Float32Array;
  readonly moment: Float32Array;
  readonly variance: Float32Array;
  /** Number of optimizer steps so far. */
  readonly step: number;
}

export interface Checkpoint {
  /** Number of updates so far. */
  readonly update: number;
  readonly model: ModelConfig;
  /** Digest of the tokenizer that the policy was trained with. */
  readonly tokenizer: string;
  readonly policy: NetworkMemory;
  /** The critic's model is the policy's, with a value head in place of the logits or beside the logits. Null without a critic. */
  readonly critic: NetworkMemory | null;
  /** With engine tinker: the policy's name at the server, which keeps the parameters. The arrays of `policy` are then empty. Default null. */
  readonly served?: string | null;
  /** The head of the critic's network; default "value". */
  readonly criticHead?: CriticHead;
  /** The learner's own state, a value that JSON can hold. */
  readonly state: unknown;
}

const CriticHead = z.enum(["value", "both"]);
type CriticHead = z.infer<typeof CriticHead>;

const Steps = z.int().nonnegative();
const StateFile = z.strictObject({
  format: z.literal(1),
  update: z.int().nonnegative(),
  model: ModelConfig,
  tokenizer: z.string(),
  criticHead: CriticHead.default("value"),
  /** As in `Checkpoint`. The file lacks this key if the parameters are in the checkpoint's folder. */
  served: z.string().min(1).nullable().default(null),
  steps: z.strictObject({ policy: Steps, critic: Steps.nullable() }),
  state: z.unknown(),
});

const STATE = "state.json";
const OPTIMIZER = "optimizer.safetensors";
const MOMENTS = ["moment", "variance"] as const;
/** The name of the file for one moment, if one file for all moments would be too large. @param name  "policy.moment" */
const momentFile = (name: string): string => `optimizer.${name}.safetensors`;
/** Size of Bun's largest array, in bytes. `decodeCheckpoint` needs each file in one array. */
const FILE_BYTES_MAX = 2 ** 32;
/** Maximum size of the header of `OPTIMIZER`, in bytes. */
const HEADER_BYTES = 4096;

/**
 * The parts of each file, by file name. A part with a tensor's numbers is a view of one of `checkpoint`'s arrays: copies would take gigabytes.
 *
 * @throws {TypeError} naming the part of `state` that JSON cannot hold
 * @throws {RangeError} if an array of the optimizer and the parameters have different lengths
 */
export function encodeCheckpoint(
  checkpoint: Checkpoint,
  fileBytesMax = FILE_BYTES_MAX,
): ReadonlyMap<string, readonly Uint8Array[]> {
  const { update, model, tokenizer, policy, critic, criticHead = "value", state, served = null } = checkpoint;
  checkJson(state, "state");
  const steps = { policy: policy.step, critic: critic?.step ?? null };
  const common = { format: 1, update, model, tokenizer, criticHead, steps, state } as const;
  const stateFile = (head: z.input<typeof StateFile>) => [
    new TextEncoder().encode(`${JSON.stringify(head, null, 2)}\n`),
  ];
  if (served !== null) return new Map([[STATE, stateFile({ ...common, served })]]);
  const files = new Map([["policy.safetensors", encodeNetwork(model, policy)]]);
  if (critic !== null) files.set("critic.safetensors", encodeNetwork({ ...model, head: criticHead }, critic));
  const moments = [...momentTensors("policy", policy), ...(critic === null ? [] : momentTensors("critic", critic))];
  const bytes = moments.reduce((sum, [, { values }]) => sum + values.byteLength, HEADER_BYTES);
  if (bytes <= fileBytesMax) files.set(OPTIMIZER, safetensorsParts(moments));
  else for (const moment of moments) files.set(momentFile(moment[0]), safetensorsParts([moment]));
  files.set(STATE, stateFile(common));
  return files;
}

function encodeNetwork(model: ModelConfig, { parameters }: NetworkMemory): Uint8Array[] {
  // Hugging Face's loaders require "pt".
  return safetensorsParts(huggingFaceViews(model, layParameters(model, parameters)), { format: "pt" });
}

function momentTensors(name: "policy" | "critic", network: NetworkMemory) {
  return MOMENTS.map((part) => {
    const values = network[part];
    if (values.length !== network.parameters.length) {
      throw new RangeError(
        `the ${name} has ${network.parameters.length} parameters, but its optimizer's array ${part} has ${values.length} numbers`,
      );
    }
    return [`${name}.${part}`, { shape: [values.length], values }] as const;
  });
}

function parseJson(name: string, bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch (error) {
    throw new Error(`${name} is not JSON: ${messageOf(error)}`);
  }
}

/** @throws {Error} naming the file that is missing or invalid */
export function decodeCheckpoint(files: ReadonlyMap<string, Uint8Array>): Checkpoint {
  const file = (name: string) => {
    const bytes = files.get(name);
    if (bytes === undefined) throw new Error(`${name} is missing`);
    return bytes;
  };
  const head = StateFile.safeParse(parseJson(STATE, file(STATE)));
  if (!head.success) throw new Error(`${STATE}: ${schemaFaults(head.error, "state")}`);
  const { update, model, tokenizer, criticHead, steps, state, served } = head.data;
  if (served !== null) {
    const empty = new Float32Array(0);
    const policy = { parameters: empty, moment: empty, variance: empty, step: steps.policy };
    return { update, model, tokenizer, policy, critic: null, state, served };
  }
  const parts = [{ name: "policy", model, step: steps.policy }];
  if (steps.critic !== null) {
    parts.push({ name: "critic", model: { ...model, head: criticHead }, step: steps.critic });
  }
  const lengths = parts.flatMap(({ name, model }) =>
    MOMENTS.map((part) => [`${name}.${part}`, [parameterCount(model)]] as const),
  );
  const ofFiles = files.has(momentFile(lengths[0]![0]))
    ? lengths.map((length) => [momentFile(length[0]), [length]] as const)
    : [[OPTIMIZER, lengths] as const];
  const moments = new Map(
    ofFiles.flatMap(([name, held]) => {
      const read = readSafetensors(file(name), name);
      checkTensors(read, new Map(held));
      return [...read.tensors];
    }),
  );
  const [policy, critic = null] = parts.map(({ name, model, step }): NetworkMemory => {
    const parameters = layParameters(model);
    readHuggingFace(model, parameters, readSafetensors(file(`${name}.safetensors`), `${name}.safetensors`));
    const [moment, variance] = MOMENTS.map((part) => moments.get(`${name}.${part}`)!.values);
    return { parameters: parameters.flat, moment: moment!, variance: variance!, step };
  });
  return {
    update,
    model,
    tokenizer,
    policy: policy!,
    critic,
    state,
    ...(criticHead === "both" ? { criticHead } : {}),
  };
}
