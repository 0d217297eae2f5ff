/**
 * The sampler's policy and its open sequences. The policy computes in a worker thread, or in the actor's thread with host `one-thread`.
 * `serverPolicy` is a policy whose replies a server writes.
 */
import { Decoder, type DecoderOptions } from "../../model/decode/decoder.ts";
import { Generator, type Reply, type ReplyRequest } from "../../model/decode/generate.ts";
import type { Engine } from "../../model/engine/engine.ts";
import { baseOf, type ModelConfig } from "../../model/policy/model-config.ts";
import { layParameters } from "../../model/policy/parameters.ts";
import { coin } from "../../model/rng.ts";
import type { ActorContext } from "../actor.ts";
import { type EngineSettings, startEngine } from "../engine/start-engine.ts";
import { loadPretrained } from "../policy/pretrained.ts";
import type { Remote, Thread } from "../process/worker-rpc.ts";
import type { Messages } from "../protocol.ts";
import { announcedValues } from "../weights/load.ts";

export interface PolicySettings {
  readonly model: ModelConfig;
  /** Folder of the base model, if the policy consists of adapters on a base model. Then the learner sends only the adapters. */
  readonly base: string | null;
  readonly engine: EngineSettings;
  readonly slots: number;
  /** Limit on the tokens of one sequence. */
  readonly capacity: number;
  /** True: the caches hold keys and values in half precision, if the engine can do so. */
  readonly halfCaches: boolean;
  /** Bearer token for weights over HTTP. */
  readonly token: string;
  /** null on the learner's machine, where weights are in shared memory. */
  readonly guest: ActorContext["guest"];
}

/** Methods of the policy. Call `start` first. */
export function policyMethods() {
  let settings: PolicySettings;
  let engine: Engine;
  let decoder: Decoder | undefined;
  let generator: Generator | undefined;
  const started = () => {
    if (generator === undefined) throw new Error("no weights have been loaded yet");
    return generator;
  };
  return {
    async start(policySettings: PolicySettings): Promise<string> {
      settings = policySettings;
      engine = await startEngine(settings.engine);
      return `${engine.name}, ${engine.device}`;
    },
    /** Loads weights. @returns the digest of the bytes found; the policy uses the bytes only if this digest is the published one */
    async load(message: Messages["weights"]): Promise<string> {
      const { values, digest } = await announcedValues(settings, message);
      if (values === null) return digest;
      if (decoder === undefined) decoder = new Decoder(engine, settings.model, values, await decoderOptions(settings));
      else decoder.setParameters(values);
      generator ??= new Generator(decoder, settings.model.vocabulary, settings.slots);
      return digest;
    },
    open: (sequence: string): void => started().open(sequence),
    reply: (sequence: string, request: ReplyRequest): Promise<Reply> => started().reply(sequence, request),
    /** Waits for token `from` of the current reply. @returns this token and those written after it; empty if the reply ends before this token */
    written: (sequence: string, from: number): Promise<number[]> => started().written(sequence, from),
    close: (sequence: string): void => started().close(sequence),
  };
}

/** If the policy consists of adapters, this function reads the base model. */
async function decoderOptions(settings: PolicySettings): Promise<DecoderOptions> {
  const { model, base, slots, capacity, halfCaches } = settings;
  if (model.lora === null) return { slots, capacity, halfCaches };
  const whole = layParameters(baseOf(model));
  await loadPretrained(base!, baseOf(model), whole);
  return { slots, capacity, halfCaches, frozen: whole.flat };
}

export type PolicyMethods = ReturnType<typeof policyMethods>;

export interface ReplyServer {
  /** "vllm, http://127.0.0.1:8000" */
  readonly name: string;
  readonly load: Remote<PolicyMethods>["load"];
  /** @param context  tokens before the reply. @param seed  an integer of 31 bits */
  readonly write: (context: readonly number[], seed: number, request: ReplyRequest) => Promise<Reply>;
  readonly stop: () => void;
}

/**
 * The sampler's policy if a server writes the replies. The policy keeps the tokens of each open sequence, and sends all of them with each
 * request. The seed of a reply is the coin of the reply's first token, so equal weights and coins make equal requests. The server decides
 * whether equal requests give equal tokens.
 */
export function serverPolicy({ name, load, write, stop }: ReplyServer): Thread<PolicyMethods> {
  const sequences = new Map<string, readonly number[]>();
  const methods: Remote<PolicyMethods> = {
    start: async () => name,
    load,
    async open(sequence) {
      sequences.set(sequence, []);
    },
    async close(sequence) {
      sequences.delete(sequence);
    },
    // This process gets no tokens before the server has written the whole reply.
    written: async () => [],
    async reply(sequence, request) {
      const { keep, prompt, coins, coinsFrom = 0 } = request;
      const before = sequences.get(sequence)!;
      const context = [...before.slice(0, keep ?? before.length), ...prompt];
      const seed = Math.floor(coin(coins, coinsFrom + context.length) * 2 ** 31);
      const reply = await write(context, seed, request);
      const { tokens, logProbs } = reply;
      if (tokens.length === 0 || tokens.length !== logProbs.length)
        throw new RangeError(`the server wrote ${tokens.length} tokens with ${logProbs.length} log-probabilities`);
      sequences.set(sequence, [...context, ...tokens]);
      return reply;
    },
  };
  return { methods, workingMs: () => 0, stop };
}
