/**
 * The gradient norms of three parts of the loss: reward, entropy and KL. The analysis sorts groups into buckets, from a small to a large
 * spread of rewards. It takes no optimizer step, and leaves out the observation loss, KL-Cov's term and the value loss.
 *
 * Source: RAGEN-2's gradient analysis, https://arxiv.org/abs/2604.06268. The paper finds that noise and regularization move the policy
 * if the spread is small.
 */
import { policyObjective, type TokenInputs } from "../learn/objective.ts";
import { type Minibatch, minibatchOf, prepare, sampleInputs } from "../learn/update/prepare.ts";
import { scoreEpisodes } from "../learn/update/score.ts";
import type { TrainingEpisode, UpdateNetworks, UpdateSettings } from "../learn/update/types.ts";
import { deviation, mean, positionsBy } from "../statistics.ts";
import { rawReward } from "../trajectory.ts";
import { type BucketRule, bucketsOf } from "./gradient-buckets.ts";

/** For each part, the input of the policy's objective that multiplies this part. `only` sets the inputs of the other parts to 0. */
const PARTS = { task: "advantages", entropy: "entropyWeights", kl: "klWeights" } as const;

/**
 * Analyzes all groups, before any filter. Each bucket is a minibatch, and all groups together are one more minibatch. `gradient.std.2`
 * is the mean std of the groups in the second bucket. `gradient.task.2` is the norm of this bucket's gradient from the advantages.
 * `gradient.task.all` is this norm over all groups. Empty buckets are absent.
 */
export async function analyzeGradients(
  networks: UpdateNetworks,
  episodes: readonly TrainingEpisode[],
  settings: UpdateSettings,
  rule: BucketRule,
): Promise<Record<string, number>> {
  const { scored } = scoreEpisodes(episodes, settings.normalization, settings.overlong);
  const prepared = await prepare(networks, scored, 1, settings);
  const groups = [...positionsBy(scored.map(({ group }) => group)).values()];
  const rewards = scored.map(({ trajectory }) => rawReward(trajectory));
  const stds = groups.map((rows) => (rows.length < 2 ? 0 : deviation(rows.map((row) => rewards[row]!))));
  const buckets = [...positionsBy(bucketsOf(stds, rule))].map(([bucket, members]) => [bucket + 1, members] as const);
  const found: Record<string, number> = {};
  for (const [bucket, members] of [["all", [...groups.keys()]] as const, ...buckets]) {
    const rows = members.flatMap((group) => groups[group]!);
    const norms = await normsOf(networks, minibatchOf(prepared, rows), settings);
    const values = { ...norms, std: mean(members.map((group) => stds[group]!)), groups: members.length };
    for (const [name, value] of Object.entries(values)) found[`gradient.${name}.${bucket}`] = value;
  }
  return found;
}

async function normsOf({ policy }: UpdateNetworks, minibatch: Minibatch, settings: UpdateSettings) {
  const inputs = sampleInputs(minibatch, settings);
  const sequences = minibatch.samples.flat();
  const objective = policyObjective(settings.policy);
  const norms: Partial<Record<keyof typeof PARTS, number>> = {};
  for (const name of Object.keys(PARTS) as (keyof typeof PARTS)[]) {
    if (!objective.inputs.includes(PARTS[name])) continue;
    const { limits, temperature } = settings;
    await policy.accumulate(objective, sequences, only(inputs, PARTS[name]), limits, temperature);
    norms[name] = await policy.dropGradient();
  }
  return norms;
}

/** The inputs, with the factors of all parts except `kept` set to 0. */
function only(inputs: TokenInputs, kept: string): TokenInputs {
  const off = Object.values(PARTS).filter((name) => name !== kept && inputs[name] !== undefined);
  const zero = off.map((name) => [name, inputs[name]!.map(({ length }) => new Float32Array(length))]);
  return { ...inputs, ...Object.fromEntries(zero) };
}
