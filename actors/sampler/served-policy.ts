/**
 * The sampler's policy on an inference server: vLLM or SGLang writes the replies with the learner's adapters. A request
 * carries tokens; its answer carries tokens and log-probabilities.
 *
 * - A policy version is a folder of adapters on this machine. The server loads the folder under a new name, and then unloads the previous
 *   version.
 * - A restarted server has no adapters. After a refused request this policy makes the server load them again, and repeats the request.
 *
 * Source: docs.vllm.ai (OpenAI-compatible server, LoRA adapters), docs.sglang.io (native API, LoRA serving).
 */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import { exportPeft } from "../policy/export.ts";
import type { Thread } from "../process/worker-rpc.ts";
import { type ModelServer, ServerError } from "../tinker/server.ts";
import { isOfDead, ownerText, thisProcess } from "../weights/files.ts";
import { announcedValues } from "../weights/load.ts";
import { type PolicyMethods, type PolicySettings, serverPolicy } from "./policy.ts";

interface Api {
  readonly load: string;
  readonly unload: string;
  readonly generate: string;
  readonly body: (adapters: string, context: readonly number[], seed: number, request: ReplyRequest) => object;
  readonly answer: z.ZodType<Pick<Reply, "tokens" | "logProbs">>;
}

/** Settings of every request, so that the server's defaults for the model do not apply. */
const common = ({ settings, stops }: ReplyRequest) => ({
  temperature: settings.temperature,
  top_p: settings.topP,
  top_k: settings.topK === 0 ? -1 : settings.topK,
  min_p: 0,
  repetition_penalty: 1,
  stop_token_ids: stops,
});

const Numbers = z.array(z.number());
const Tokens = z.array(z.int());

const APIS: Readonly<Record<"vllm" | "sglang", Api>> = {
  vllm: {
    load: "v1/load_lora_adapter",
    unload: "v1/unload_lora_adapter",
    generate: "v1/completions",
    body: (model, prompt, seed, request) => ({
      model,
      prompt,
      seed,
      max_tokens: request.tokensMax,
      logprobs: 1,
      return_token_ids: true,
      ...common(request),
    }),
    answer: z
      .object({
        choices: z.tuple([z.object({ token_ids: Tokens, logprobs: z.object({ token_logprobs: Numbers }) })]),
      })
      .transform(({ choices: [{ token_ids: tokens, logprobs }] }) => ({ tokens, logProbs: logprobs.token_logprobs })),
  },
  sglang: {
    load: "load_lora_adapter",
    unload: "unload_lora_adapter",
    generate: "generate",
    body: (lora_path, input_ids, seed, request) => ({
      input_ids,
      lora_path,
      return_logprob: true,
      sampling_params: { max_new_tokens: request.tokensMax, sampling_seed: seed, ...common(request) },
    }),
    answer: z
      .object({ meta_info: z.object({ output_token_logprobs: z.array(z.tuple([z.number(), z.int()], z.unknown())) }) })
      .transform(({ meta_info: { output_token_logprobs: pairs } }) => ({
        tokens: pairs.map(([, token]) => token),
        logProbs: pairs.map(([logProb]) => logProb),
      })),
  },
};

export function servedPolicy(
  engine: keyof typeof APIS,
  server: ModelServer,
  settings: Pick<PolicySettings, "model" | "base" | "token" | "guest">,
): Thread<PolicyMethods> {
  const { load, unload, generate, body, answer } = APIS[engine];
  const folder = adaptersFolder(tmpdir());
  let adapters: string | null = null;
  let loading: Promise<unknown> | null = null;
  const pathOf = (name: string) => join(folder, name);
  const loadAdapters = (name: string) => server.post(load, { lora_name: name, lora_path: pathOf(name) });
  const drop = async (name: string) => {
    // A restarted server does not know the adapters.
    await server.post(unload, { lora_name: name }).catch(() => {});
    rmSync(pathOf(name), { recursive: true, force: true });
  };
  return serverPolicy({
    name: `${engine}, ${server.url}`,
    async load(message) {
      const { values, digest } = await announcedValues(settings, message);
      if (values === null) return digest;
      const name = `bunraku-${crypto.randomUUID()}`;
      await exportPeft({ ...settings, parameters: values }, pathOf(name));
      await loadAdapters(name);
      const before = adapters;
      adapters = name;
      if (before !== null) await drop(before);
      return digest;
    },
    async write(context, seed, request) {
      const name = adapters!;
      const ask = () => server.ask(generate, body(name, context, seed, request), answer);
      const { tokens, logProbs } = await ask().catch(async (error: unknown) => {
        if (!(error instanceof ServerError && error.isFinal)) throw error;
        loading ??= loadAdapters(name).finally(() => (loading = null));
        // Loading fails if the server already has the adapters. Then the second answer says why the server refuses the request.
        await loading.catch(() => {});
        return ask();
      });
      return { tokens, logProbs, cut: !request.stops.includes(tokens.at(-1)!) };
    },
    // The last version stays loaded: a request to unload it could outlast the sampler.
    stop() {
      server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  });
}

const FOLDER = /^bunraku-adapters-(\d+)\.(\d+)\.(\d+)-/;

/** Makes a folder whose name contains this process's identity. First removes the folders that dead processes left. */
export function adaptersFolder(parent: string): string {
  for (const name of readdirSync(parent)) {
    if (!isOfDead(name, FOLDER)) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // The folder may belong to another account.
    }
  }
  return mkdtempSync(join(parent, `bunraku-adapters-${ownerText(thisProcess())}-`));
}
