/**
 * The policy in training: adapters on a model that a server keeps. An update of model/learn/ uses this policy like a network. The server
 * computes gradients. This file computes losses and metrics from the log-probabilities that the server returns.
 *
 * - Bunraku's loss is `sum(weights * loss per token)`, but a server takes a mean. So each sequence gets one more position, with advantage 0
 *   and with a weight that makes the sum of weights equal in all sequences. This file multiplies the advantages by that sum and by the number
 *   of sequences. If a server takes sums instead, its gradient has a constant factor, and AdamW's steps do not depend on this factor.
 * - Imitation uses the server's mean: skyrl-tx gives all demonstrations the same weight; another server may give all tokens the same weight.
 * - The entropy here is an estimate, the mean of -log p over the written tokens, because servers return no entropy.
 */
import { z } from "zod";
import type { Sequence } from "../../model/learn/batch.ts";
import type { TrainedPolicy } from "../../model/learn/network.ts";
import { imitation, type TokenInputs } from "../../model/learn/objective.ts";
import type { OptimizerSettings } from "../../model/learn/optimizer.ts";
import type { ModelServer } from "./server.ts";

/** One sequence in the form that the server takes. `targets` has the next token of each position, and 0 at the last position. */
interface Datum {
  /** The positions that predict the written tokens. */
  readonly places: readonly number[];
  readonly tokens: readonly number[];
  readonly targets: readonly number[];
}

const Floats = z.object({ data: z.array(z.number()) });
const Pass = z.object({ loss_fn_outputs: z.array(z.object({ logprobs: Floats })) });
const Done = z.object({});

/** Where the loss ppo clips the ratio. Requests name both bounds, but skyrl-tx lets no client set them. */
const [RATIO_MIN, RATIO_MAX] = [1 - 0.2, 1 + 0.2];

export class TrainedModel implements TrainedPolicy {
  readonly #server: ModelServer;
  readonly id: string;

  constructor(server: ModelServer, id: string) {
    this.#server = server;
    this.id = id;
  }

  async accumulate(
    objective: Parameters<TrainedPolicy["accumulate"]>[0],
    sequences: readonly Sequence[],
    inputs: TokenInputs,
  ): Promise<Record<string, number>> {
    const data = sequences.map(datumOf);
    const weights = inputs["weights"]!;
    if (objective.name === imitation.name) {
      const logProbs = await this.#pass("forward_backward", data, "cross_entropy");
      const loss = -total(data, (member, at) => weights[member]![at]! * logProbs[member]![at]!);
      return { loss, entropy: loss };
    }
    const advantages = inputs["advantages"]!;
    const old = inputs["oldLogProbs"]!;
    const widest = Math.max(...data.map(({ places }) => places.length));
    const scale = widest * data.length;
    const logProbs = await this.#pass("forward_backward", data, "ppo", (member) => ({
      advantages: Array.from(weights[member]!, (weight, at) => weight * advantages[member]![at]! * scale),
      logProbs: old[member]!,
      padding: widest - weights[member]!.length,
    }));
    return policyMetrics(data, logProbs, inputs);
  }

  async step({ learningRate, beta1, beta2, epsilon, weightDecay }: OptimizerSettings) {
    const adam_params = { learning_rate: learningRate, beta1, beta2, eps: epsilon, weight_decay: weightDecay };
    await this.#server.result("optim_step", { model_id: this.id, adam_params }, Done, false);
    // Servers return no gradient norm.
    return { applied: true, gradientNorm: Number.NaN };
  }

  /** `entropies` has -log p of each written token: the mean estimates the policy's entropy. */
  async score(sequences: readonly Sequence[]): Promise<{ logProbs: Float32Array[]; entropies: Float32Array[] }> {
    const logProbs = await this.#pass("forward", sequences.map(datumOf), "cross_entropy");
    return { logProbs, entropies: logProbs.map((row) => row.map((logProb) => -logProb)) };
  }

  /** Sets the optimizer's moments to 0: takes a step with gradient 0, betas 0 and step size 0. The server keeps its step count. */
  async resetOptimizer(): Promise<void> {
    const sequence = { tokens: Int32Array.of(0, 0), written: Int32Array.of(1) };
    const nothing = () => ({ advantages: [0], logProbs: [0], padding: 0 });
    await this.#pass("forward_backward", [datumOf(sequence)], "ppo", nothing);
    await this.step({ learningRate: 0, beta1: 0, beta2: 0, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 });
  }

  /** @returns (sequences)(written tokens) log-probabilities under the current policy */
  async #pass(
    path: "forward" | "forward_backward",
    data: readonly Datum[],
    loss_fn: "cross_entropy" | "ppo",
    termsOf?: (member: number) => {
      readonly advantages: readonly number[];
      readonly logProbs: ArrayLike<number>;
      /** The weight, at the server, of the position that `accumulate` adds. */
      readonly padding: number;
    },
  ): Promise<Float32Array[]> {
    const body = data.map(({ places, tokens, targets }, member) => {
      const lay = (values: ArrayLike<number>, last = 0) => {
        const padded = new Array<number>(tokens.length).fill(0);
        for (const [at, place] of places.entries()) padded[place] = values[at]!;
        padded[tokens.length - 1] = last;
        return { data: padded, dtype: "float32", shape: [padded.length] };
      };
      const ones = new Array<number>(places.length).fill(1);
      const terms = termsOf?.(member);
      return {
        model_input: { chunks: [{ type: "encoded_text", tokens }] },
        loss_fn_inputs: {
          target_tokens: { data: targets, dtype: "int64", shape: [targets.length] },
          weights: lay(ones, terms?.padding),
          ...(terms === undefined ? {} : { advantages: lay(terms.advantages), logprobs: lay(terms.logProbs) }),
        },
      };
    });
    const bounds = { clip_low_threshold: RATIO_MIN, clip_high_threshold: RATIO_MAX };
    const input = { data: body, loss_fn, loss_fn_config: loss_fn === "ppo" ? bounds : {} };
    const request = { model_id: this.id, [path === "forward" ? "forward_input" : "forward_backward_input"]: input };
    const { loss_fn_outputs } = await this.#server.result(path, request, Pass, path === "forward");
    return data.map(({ places }, i) => {
      const values = loss_fn_outputs[i]?.logprobs.data;
      if (values === undefined) throw new RangeError(`the server scored ${i} of ${data.length} sequences`);
      const last = places.at(-1)!;
      if (values.length <= last)
        throw new RangeError(
          `the server returned ${values.length} log-probabilities of sequence ${i + 1}, and the last written token is number ${last + 1}`,
        );
      return Float32Array.from(places, (place) => values[place]!);
    });
  }
}

/** Leaves out all tokens after the last written token, because they have no effect. */
function datumOf({ tokens, written }: Sequence): Datum {
  const own = Array.from(tokens.subarray(0, written.at(-1)! + 1));
  const places = Array.from(written, (position) => position - 1);
  return { places, tokens: own, targets: [...own.slice(1), 0] };
}

const total = (data: readonly Datum[], value: (member: number, at: number) => number): number =>
  data.reduce((sum, { places }, member) => sum + places.reduce((own, _, at) => own + value(member, at), 0), 0);

/** The metrics of `policyObjective`, by its formulas (model/learn/loss.ts). */
function policyMetrics(data: readonly Datum[], logProbs: readonly Float32Array[], inputs: TokenInputs) {
  const { oldLogProbs, advantages, weights, shares } = inputs as Record<string, readonly ArrayLike<number>[]>;
  const share = (value: (logProb: number, gap: number, advantage: number) => number, by = shares!) =>
    total(data, (member, at) => {
      const logProb = logProbs[member]![at]!;
      return by[member]![at]! * value(logProb, logProb - oldLogProbs![member]![at]!, advantages![member]![at]!);
    });
  const policyLoss = share((_, gap, advantage) => {
    const ratio = Math.exp(gap);
    return -Math.min(ratio * advantage, Math.min(RATIO_MAX, Math.max(RATIO_MIN, ratio)) * advantage);
  }, weights!);
  return {
    loss: policyLoss,
    policyLoss,
    clipHigh: share((_, gap, advantage) => Number(advantage > 0 && Math.exp(gap) > RATIO_MAX)),
    clipLow: share((_, gap, advantage) => Number(advantage < 0 && Math.exp(gap) < RATIO_MIN)),
    ratioKl: share((_, gap) => -gap),
    entropy: share((logProb) => -logProb),
    logProbGap: share((_, gap) => Math.abs(gap)),
  };
}
