/**
 * The sampler's policy of engine tinker: a server writes the replies. Tokens in, tokens and log-probabilities out.
 *
 * - Every reply of a sampler is one request, so the server batches as many as the sampler plays episodes.
 * - The seed of a reply is the coin of its first token, so equal weights and coins make equal requests. Equal tokens are up to the server.
 */
import { z } from "zod";
import { coin } from "../../model/rng.ts";
import type { Remote, Thread } from "../process/worker-rpc.ts";
import type { Messages } from "../protocol.ts";
import type { PolicyMethods } from "../sampler/policy.ts";
import type { TinkerServer } from "./server.ts";
import { digestOf } from "./version.ts";

const Sampled = z.object({
  sequences: z
    .array(z.object({ tokens: z.array(z.int()), logprobs: z.array(z.number()), stop_reason: z.string() }))
    .min(1),
});

export function tinkerPolicy(server: TinkerServer): Thread<PolicyMethods> {
  const sequences = new Map<string, readonly number[]>();
  let name = "";
  const methods: Remote<PolicyMethods> = {
    start: async () => `tinker, ${server.url}`,
    async load({ location }: Messages["weights"]) {
      if (location.kind !== "server") throw new TypeError(`engine tinker cannot load ${location.kind} weights`);
      name = location.name;
      return digestOf(name);
    },
    async open(sequence) {
      sequences.set(sequence, []);
    },
    async close(sequence) {
      sequences.delete(sequence);
    },
    // Nothing is shown while the server writes.
    written: async () => [],
    async reply(sequence, { keep, prompt, stops, tokensMax, settings, coins, coinsFrom = 0 }) {
      const before = sequences.get(sequence)!;
      const context = [...before.slice(0, keep ?? before.length), ...prompt];
      const { sequences: replies } = await server.result(
        "asample",
        {
          model_path: name,
          prompt: { chunks: [{ type: "encoded_text", tokens: context }] },
          num_samples: 1,
          sampling_params: {
            max_tokens: tokensMax,
            seed: Math.floor(coin(coins, coinsFrom + context.length) * 2 ** 31),
            stop: stops,
            temperature: settings.temperature,
            top_p: settings.topP,
            top_k: settings.topK === 0 ? -1 : settings.topK,
          },
          type: "sample",
        },
        Sampled,
        true,
      );
      const { tokens, logprobs, stop_reason } = replies[0]!;
      if (tokens.length === 0 || tokens.length !== logprobs.length)
        throw new RangeError(`the server wrote ${tokens.length} tokens with ${logprobs.length} log-probabilities`);
      sequences.set(sequence, [...context, ...tokens]);
      return { tokens, logProbs: logprobs, cut: stop_reason !== "stop" };
    },
  };
  return { methods, workingMs: () => 0, stop: () => server.close() };
}
