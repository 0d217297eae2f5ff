/**
 * The sampler's policy where a server writes the replies. It keeps the tokens of each open sequence, because a request sends them all.
 * The seed of a reply is the coin of its first token: equal weights and coins make equal requests. The server decides whether equal
 * requests give equal tokens.
 */
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import { coin } from "../../model/rng.ts";
import type { Remote, Thread } from "../process/worker-rpc.ts";
import type { PolicyMethods } from "./policy.ts";

export interface ReplyServer {
  /** "vllm, http://127.0.0.1:8000" */
  readonly name: string;
  readonly load: Remote<PolicyMethods>["load"];
  /** @param context  tokens before the reply. @param seed  of 31 bits */
  readonly write: (context: readonly number[], seed: number, request: ReplyRequest) => Promise<Reply>;
  readonly stop: () => void;
}

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
    // No tokens are known while the server writes.
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
