/**
 * An inference server with the documented schemas of vLLM (OpenAI-compatible completions, dynamic LoRA) and SGLang (native API). The
 * server reads adapters from their folder, writes replies with them, and refuses unknown fields.
 */
import { join } from "node:path";
import { z } from "zod";
import { loadPretrained, readPretrained } from "../../../actors/policy/pretrained.ts";
import { readSafetensors } from "../../../model/checkpoint/safetensors.ts";
import { Decoder } from "../../../model/decode/decoder.ts";
import { Generator } from "../../../model/decode/generate.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { Lora } from "../../../model/policy/lora.ts";
import { layParameters } from "../../../model/policy/parameters.ts";
import { hash64 } from "../../../model/rng.ts";

const Ids = z.array(z.int());
const common = {
  temperature: z.number(),
  top_p: z.number(),
  top_k: z.int(),
  min_p: z.literal(0),
  repetition_penalty: z.literal(1),
  stop_token_ids: Ids,
};
const ForVllm = z.strictObject({
  ...common,
  model: z.string(),
  prompt: Ids,
  seed: z.int(),
  max_tokens: z.int(),
  logprobs: z.literal(1),
  return_token_ids: z.literal(true),
});
const ForSglang = z.strictObject({
  input_ids: Ids,
  lora_path: z.string(),
  return_logprob: z.literal(true),
  sampling_params: z.strictObject({ ...common, max_new_tokens: z.int(), sampling_seed: z.int() }),
});
const Named = z.strictObject({ lora_name: z.string(), lora_path: z.string().optional() });
const AdapterConfig = z.object({ r: z.int(), lora_alpha: z.number(), target_modules: Lora.shape.targets });

export class AdapterServer {
  readonly #folder: string;
  readonly #server: ReturnType<typeof Bun.serve>;
  readonly #engine = compiledEngine({ threads: 1 });
  /** Generators, by the name of their adapters. */
  readonly loaded = new Map<string, Generator>();
  /** Paths of the requests so far. */
  readonly asked: string[] = [];
  /** Called with the path of each request, before it is answered. */
  interfere: (path: string) => void = () => {};
  #replies = 0;

  /** @param folder  of the model */
  constructor(folder: string) {
    this.#folder = folder;
    this.#server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: async (request) => {
        const path = new URL(request.url).pathname;
        this.asked.push(path);
        this.interfere(path);
        return this.#answer(path, await request.json()).catch((error: Error) =>
          Response.json({ error: { message: error.message, type: "BadRequestError", code: 400 } }, { status: 400 }),
        );
      },
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.port}`;
  }

  stop(): Promise<void> {
    return this.#server.stop(true);
  }

  async #answer(path: string, body: unknown): Promise<Response> {
    switch (path) {
      case "/v1/load_lora_adapter":
        return new Response(await this.#load(body));
      case "/load_lora_adapter":
        return Response.json({ success: true, message: await this.#load(body) });
      case "/v1/unload_lora_adapter":
      case "/unload_lora_adapter":
        if (!this.loaded.delete(Named.parse(body).lora_name)) throw new Error("no such adapter");
        return new Response("Success");
      case "/v1/completions": {
        const asked = ForVllm.parse(body);
        const { tokens, logProbs, cut } = await this.#reply(
          asked.model,
          asked.prompt,
          asked.seed,
          asked.max_tokens,
          asked,
        );
        const logprobs = { tokens: tokens.map(String), token_logprobs: logProbs, top_logprobs: [], text_offset: [] };
        const choice = { index: 0, text: "", logprobs, token_ids: tokens, prompt_token_ids: asked.prompt };
        return Response.json({
          object: "text_completion",
          choices: [{ ...choice, finish_reason: cut ? "length" : "stop" }],
        });
      }
      case "/generate": {
        const { input_ids: prompt, lora_path: name, sampling_params: asked } = ForSglang.parse(body);
        const { tokens, logProbs } = await this.#reply(name, prompt, asked.sampling_seed, asked.max_new_tokens, asked);
        const pairs = tokens.map((token, i) => [logProbs[i]!, token, null]);
        return Response.json({ text: "", output_ids: tokens, meta_info: { output_token_logprobs: pairs } });
      }
      default:
        return new Response("Not Found", { status: 404 });
    }
  }

  async #load(body: unknown): Promise<string> {
    const { lora_name: name, lora_path: path } = Named.parse(body);
    if (this.loaded.has(name)) throw new Error(`The lora adapter '${name}' has already been loaded.`);
    const { r, lora_alpha, target_modules } = AdapterConfig.parse(
      await Bun.file(join(path!, "adapter_config.json")).json(),
    );
    const { model: base } = readPretrained(this.#folder);
    const frozen = layParameters(base);
    await loadPretrained(this.#folder, base, frozen);
    const model = { ...base, lora: { rank: r, alpha: lora_alpha, targets: target_modules } };
    const parameters = layParameters(model);
    const file = join(path!, "adapter_model.safetensors");
    const { tensors } = readSafetensors(await Bun.file(file).bytes(), file);
    for (const [key, { values }] of parameters.views) values.set(tensors.get(`base_model.model.${key}`)!.values);
    const options = { slots: 64, capacity: 256, frozen: frozen.flat };
    const decoder = new Decoder(this.#engine, model, parameters.flat, options);
    this.loaded.set(name, new Generator(decoder, model.vocabulary, options.slots));
    return `Success: LoRA adapter '${name}' added successfully.`;
  }

  async #reply(
    name: string,
    prompt: number[],
    seed: number,
    tokensMax: number,
    asked: { temperature: number; top_p: number; top_k: number; stop_token_ids: number[] },
  ) {
    const generator = this.loaded.get(name);
    if (generator === undefined) throw new Error(`The model \`${name}\` does not exist.`);
    const sequence = `${this.#replies++}`;
    generator.open(sequence);
    try {
      return await generator.reply(sequence, {
        prompt,
        tokensMax,
        stops: asked.stop_token_ids,
        coins: { seed, episode: hash64("reply") },
        settings: { temperature: asked.temperature, topP: asked.top_p, topK: Math.max(0, asked.top_k) },
      });
    } finally {
      generator.close(sequence);
    }
  }
}
