/**
 * What pulls at the policy, and from where: norms of the gradients of the reward's, the entropy's and the KL's part of the
 * loss, each over groups whose rewards differ little, more, and much. Nothing is changed by it.
 *
 * Source: RAGEN-2's gradient analysis, https://arxiv.org/abs/2604.06268: where rewards hardly differ, what moves the policy is
 * noise and regularisation.
 */
import { microBatches } from "../learn/batch.ts";
import type { TokenInputs } from "../learn/objective.ts";
import { policyObjective } from "../learn/objective.ts";
import { minibatchOf, sampleInputs } from "../learn/update/minibatch.ts";
import { prepare } from "../learn/update/prepare.ts";
import { scoreEpisodes } from "../learn/update/score.ts";
import type { Learners, TrainingEpisode, UpdateSettings } from "../learn/update/types.ts";
import { deviation, mean, positionsBy } from "../statistics.ts";
import { rawReward } from "../trajectory.ts";

export const BUCKET_COUNT = 6;

/** quantile: as many groups in each bucket. fixed: bucket b holds a std from b up to b + 1, the last also all above. */
export type BucketRule = "quantile" | "fixed";

/** (groups) bucket of each, from 0, by its std of raw reward. Equal stds keep their order. */
export function bucketsOf(stds: readonly number[], rule: BucketRule): number[] {
  if (rule === "fixed") return stds.map((std) => Math.min(BUCKET_COUNT - 1, Math.floor(std)));
  const ranked = [...stds.keys()].sort((a, b) => stds[a]! - stds[b]! || a - b);
  const buckets = new Array<number>(stds.length);
  for (const [rank, group] of ranked.entries()) buckets[group] = Math.floor((rank * BUCKET_COUNT) / stds.length);
  return buckets;
}

/** Which inputs of the policy's objective to keep; the others' weights are 0. */
const PARTS = {
  task: ["advantages"],
  entropy: ["entropyWeights"],
  kl: ["klWeights"],
} as const satisfies Record<string, readonly string[]>;

/**
 * Before a filter, as if each bucket were a minibatch of its own, and as if all groups were one. Numbers by name:
 * `gradient.std.2` is the mean std of the second bucket's groups, `gradient.task.2` the norm of its gradient by advantages
 * alone, `gradient.task.all` that of all groups. Empty buckets have none.
 */
export async function analyzeGradients(
  learners: Learners,
  played: readonly TrainingEpisode[],
  settings: UpdateSettings,
  rule: BucketRule,
): Promise<Record<string, number>> {
  const { scored } = scoreEpisodes(played, settings.normalization, settings.overlong);
  const data = await prepare(learners, scored, 1, settings);
  const groups = [...positionsBy(scored.map(({ group }) => group)).values()];
  const stds = groups.map((rows) => spreadOf(rows.map((row) => rawReward(scored[row]!.trajectory))));
  const buckets = [...positionsBy(bucketsOf(stds, rule))].map(([bucket, members]) => [bucket + 1, members] as const);
  const found: Record<string, number> = {};
  for (const [bucket, members] of [["all", [...groups.keys()]] as const, ...buckets]) {
    const rows = members.flatMap((group) => groups[group]!);
    const norms = await normsOf(learners, minibatchOf(data, rows), settings);
    const values = { ...norms, std: mean(members.map((group) => stds[group]!)), groups: members.length };
    for (const [name, value] of Object.entries(values)) found[`gradient.${name}.${bucket}`] = value;
  }
  return found;
}

const spreadOf = (rewards: readonly number[]) => (rewards.length < 2 ? 0 : deviation(rewards));

async function normsOf({ policy }: Learners, part: ReturnType<typeof minibatchOf>, settings: UpdateSettings) {
  const inputs = sampleInputs(part, settings);
  const batches = microBatches(part.samples.flat(), settings.limits);
  const objective = policyObjective(settings.policy);
  const norms: Partial<Record<keyof typeof PARTS, number>> = {};
  for (const name of Object.keys(PARTS) as (keyof typeof PARTS)[]) {
    if (!PARTS[name].every((input) => objective.inputs.includes(input))) continue;
    await policy.accumulate(objective, batches, only(inputs, PARTS[name]), settings.temperature);
    norms[name] = await policy.dropGradient();
  }
  return norms;
}

/** Inputs with the weights of all parts but `kept` at 0. */
function only(inputs: TokenInputs, kept: readonly string[]): TokenInputs {
  const off = Object.values(PARTS)
    .flat()
    .filter((name) => !kept.includes(name));
  const zero = off.flatMap((name) => {
    const values = inputs[name];
    return values === undefined ? [] : [[name, values.map(({ length }) => new Float32Array(length))] as const];
  });
  return { ...inputs, ...Object.fromEntries(zero) };
}
