/** The sampler's policy of engine tinker. Each reply is one request; the server can batch the requests of all current episodes. */
import { z } from "zod";
import type { Thread } from "../process/worker-rpc.ts";
import { type PolicyMethods, serverPolicy } from "../sampler/policy.ts";
import { digestOf, type ModelServer } from "./server.ts";

const Sampled = z.object({
  sequences: z
    .array(z.object({ tokens: z.array(z.int()), logprobs: z.array(z.number()), stop_reason: z.string() }))
    .min(1),
});

export function tinkerPolicy(server: ModelServer): Thread<PolicyMethods> {
  let version = "";
  return serverPolicy({
    name: `tinker, ${server.url}`,
    async load({ location }) {
      if (location.kind !== "server") throw new TypeError(`engine tinker cannot load ${location.kind} weights`);
      version = location.name;
      return digestOf(version);
    },
    async write(context, seed, { stops, tokensMax, settings }) {
      const { sequences } = await server.result(
        "asample",
        {
          model_path: version,
          prompt: { chunks: [{ type: "encoded_text", tokens: context }] },
          num_samples: 1,
          sampling_params: {
            max_tokens: tokensMax,
            seed,
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
      const { tokens, logprobs, stop_reason } = sequences[0]!;
      return { tokens, logProbs: logprobs, cut: stop_reason !== "stop" };
    },
    stop: () => server.close(),
  });
}
