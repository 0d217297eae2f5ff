/**
 * One StarPO update: from episodes to new parameters. It knows numbers only: neither env nor actor.
 *
 *   rewards → filter groups (StarPO-S) → advantages → minibatches → micro-batches → gradients → optimizer
 *
 * - The filter sees raw rewards; advantages come from rewards after penalties and normalization (score.ts, prepare.ts).
 * - Rewards, advantages, aggregation and minibatches count an episode once, even if it has several contexts.
 * - The ratio's old log-probabilities are those recorded at sampling. With importance weights, and for tokens that no sampler wrote,
 *   they are the current policy's (prepare.ts).
 * - A gradient that is not finite changes no parameter, and `skipped` in the result names its norm.
 */
import { rewardSpread } from "../../health/diagnostics.ts";
import { isConstant, isConstantSum, mean, positionsBy } from "../../statistics.ts";
import { rawReward, trajectoryFault, writtenTokens } from "../../trajectory.ts";
import type { Aggregation } from "../aggregation.ts";
import type { BatchLimits, Sequence } from "../batch.ts";
import { type Filtered, filterGroups, metricOf } from "../filter.ts";
import type { Network, TrainedPolicy } from "../network.ts";
import { policyObjective, type TokenInputs, valueObjective } from "../objective.ts";
import { joinByEpisode, samplesOf } from "../sequences.ts";
import { minibatchOf, type PreparedUpdate, prepare, sampleInputs } from "./prepare.ts";
import { scoreEpisodes } from "./score.ts";
import { advantagesTowards } from "./towards-target.ts";
import type { CriticSettings, TrainingEpisode, UpdateNetworks, UpdateResult, UpdateSettings } from "./types.ts";

/**
 * Trains the policy, and the critic if there is one, on these episodes.
 *
 * @throws {RangeError} if a trajectory is invalid (see `trajectoryFault`); then nothing has changed.
 */
export async function update(
  networks: UpdateNetworks<TrainedPolicy>,
  episodes: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Promise<UpdateResult> {
  for (const [i, { trajectory }] of episodes.entries()) {
    const fault = trajectoryFault(trajectory, Number.POSITIVE_INFINITY);
    if (fault !== null) throw new RangeError(`cannot learn from trajectory ${i} of ${episodes.length}: ${fault}`);
  }
  const { scored, overlongMean } = scoreEpisodes(episodes, settings.normalization, settings.overlong);
  const groups = episodes.map(({ group }) => group);
  const rewards = episodes.map(({ trajectory }) => rawReward(trajectory));
  const candidates = settings.dropConstant ? rowsOfVariedGroups(rewards, groups) : [...episodes.keys()];
  const filtered = await filter(
    networks,
    candidates.map((row) => episodes[row]!),
    settings,
  );
  const spread = rewardSpread(rewards, groups);
  const metrics: Record<string, number> = { keptGroups: filtered.kept.length / new Set(groups).size };
  if (spread !== null) Object.assign(metrics, { inGroupStd: spread.rewardStd, zeroStdGroups: spread.zeroStdShare });
  if (overlongMean !== null) metrics["overlong"] = overlongMean;
  const advantages: (number | null)[] = episodes.map(() => null);
  if (filtered.reason !== null) return { skipped: filtered.reason, advantages, steps: 0, metrics };

  const rows = filtered.rows.map((row) => candidates[row]!);
  const kept = rows.map((row) => scored[row]!);
  const keptSpread = rewardSpread(
    rows.map((row) => rewards[row]!),
    rows.map((row) => groups[row]!),
  );
  if (keptSpread !== null) metrics["keptInGroupStd"] = keptSpread.rewardStd;
  const prepared = await prepare(networks, kept, filtered.keptShare, settings);
  const trained = await train(networks, prepared, settings);
  Object.assign(metrics, trained.metrics, prepared.metrics);
  const tokenAdvantages: (Float32Array<ArrayBuffer> | null)[] = episodes.map(() => null);
  for (const [i, row] of rows.entries()) {
    const perToken = Float32Array.from(prepared.replyAdvantages[i]!);
    advantages[row] = mean(perToken);
    if (!isConstant(perToken)) tokenAdvantages[row] = perToken;
  }
  return { skipped: trained.skipped, advantages, tokenAdvantages, steps: trained.steps, metrics };
}

/** Rows of the groups whose raw rewards differ. */
function rowsOfVariedGroups(rewards: readonly number[], groups: readonly number[]): number[] {
  const varied = [...positionsBy(groups).values()].filter((rows) => !isConstantSum(rows.map((row) => rewards[row]!)));
  return varied.flat().sort((a, b) => a - b);
}

type Selection = Pick<Filtered, "kept" | "rows" | "reason"> & Pick<Filtered["metrics"], "keptShare">;

async function filter(
  { policy }: UpdateNetworks<TrainedPolicy>,
  episodes: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Promise<Selection> {
  if (episodes.length === 0) {
    const reason = "within every group, replacements included, all rewards are equal";
    return { kept: [], rows: [], reason, keptShare: 0 };
  }
  const candidates = {
    groups: episodes.map(({ group }) => group),
    rewards: episodes.map(({ trajectory }) => rawReward(trajectory)),
    lengths: episodes.map(({ trajectory }) => writtenTokens(trajectory)),
  };
  const entropies = metricOf(settings.filter).startsWith("entropy")
    ? await meanEntropies(policy, episodes, settings)
    : null;
  const filtered = filterGroups({ ...candidates, ...(entropies === null ? {} : { entropies }) }, settings.filter);
  return { ...filtered, keptShare: filtered.metrics.keptShare };
}

/** (episodes) mean entropy of the policy over the written tokens, in nats. */
async function meanEntropies(
  policy: TrainedPolicy,
  episodes: readonly TrainingEpisode[],
  { limits, temperature }: UpdateSettings,
): Promise<number[]> {
  const samples = episodes.map(({ trajectory }) => samplesOf(trajectory));
  const { entropies } = await policy.score(samples.flat(), limits, temperature);
  return joinByEpisode(samples, entropies).map(mean);
}

async function train(
  { policy, critic }: UpdateNetworks<TrainedPolicy>,
  prepared: PreparedUpdate,
  settings: UpdateSettings,
) {
  const { observationLoss, covariance } = settings;
  const objective = policyObjective(settings.policy, {
    hasObservationTerm: observationLoss > 0,
    hasCovarianceTerm: covariance?.treatment === "kl",
  });
  const measured: MinibatchMetrics[] = [];
  const count = prepared.samples.length;
  const { minibatch } = settings;
  const size = typeof minibatch === "number" ? minibatch : Math.ceil(count / minibatch.parts);
  let steps = 0;
  let skipped: string | null = null;
  const observations = { loss: 0, tokens: 0 };
  for (let epoch = 0; epoch < settings.epochs; epoch++) {
    for (let start = 0; start < count; start += size) {
      const indices = Array.from({ length: Math.min(size, count - start) }, (_, i) => start + i);
      const { samples, inputs: chosen } = minibatchOf(prepared, indices);
      const advantages =
        prepared.target === null
          ? chosen["advantages"]!
          : await advantagesTowards(prepared.target, policy, prepared.samples, indices, settings);
      const ofSamples = sampleInputs({ samples, inputs: { ...chosen, advantages } }, settings);
      const own = { sequences: samples.flat(), inputs: ofSamples, observed: 0 };
      const { observed, sequences, inputs } =
        observationLoss > 0 ? withObservations(own.sequences, own.inputs, observationLoss) : own;
      const values: Record<string, number> = {};
      const tokens = own.sequences.reduce((sum, { written }) => sum + written.length, 0);
      measured.push({ values, tokens, episodes: indices.length });
      if (critic !== null && settings.critic !== null) {
        const valued = await trainCritic(critic, settings.critic, sequences, inputs, settings.limits);
        if (valued.skipped !== null) skipped = valued.skipped;
        Object.assign(values, valued.metrics);
      }
      if (!settings.trainPolicy) continue;
      const {
        loss: _,
        observationLoss: weighted = 0,
        ...result
      } = await policy.accumulate(objective, sequences, inputs, settings.limits, settings.temperature);
      // The mean is over tokens and not over minibatches, because a minibatch may have no token of the env.
      observations.loss += observed * weighted;
      observations.tokens += observed;
      const step = await policy.step(settings.optimizer);
      if (step.applied) steps++;
      else skipped = `the gradient's norm is ${step.gradientNorm}; no step was taken`;
      Object.assign(values, result, { gradNorm: step.gradientNorm });
    }
  }
  const metrics = meansOf(measured, settings.aggregation);
  // The metric is the loss without its weight. It is absent if the env wrote nothing after a reply.
  if (observations.tokens > 0) metrics["observationLoss"] = observations.loss / observations.tokens / observationLoss;
  return { skipped, steps, metrics };
}

/** Takes the critic's step. A critic that shares the policy's backbone only adds its gradient; the policy's step applies it. */
async function trainCritic(
  critic: Network,
  settings: CriticSettings,
  sequences: readonly Sequence[],
  inputs: TokenInputs,
  limits: BatchLimits,
): Promise<{ skipped: string | null; metrics: Record<string, number> }> {
  const objective = valueObjective(settings.valueClip);
  if (settings.backbone === "shared") {
    const { coefficient } = settings;
    const weights = inputs["weights"]!.map((row) => Float32Array.from(row, (weight) => weight * coefficient));
    const { loss: _, ...metrics } = await critic.accumulate(objective, sequences, { ...inputs, weights }, limits);
    return { skipped: null, metrics: { ...metrics, valueLoss: metrics["valueLoss"]! / coefficient } };
  }
  const { loss: _, ...metrics } = await critic.accumulate(objective, sequences, inputs, limits);
  const { applied, gradientNorm } = await critic.step(settings.optimizer);
  const skipped = applied ? null : `the norm of the critic's gradient is ${gradientNorm}; no step was taken`;
  return { skipped, metrics: { ...metrics, criticGradNorm: gradientNorm } };
}

interface MinibatchMetrics {
  readonly values: Readonly<Record<string, number>>;
  /** Written tokens. */
  readonly tokens: number;
  readonly episodes: number;
}

const NORMS: ReadonlySet<string> = new Set(["gradNorm", "criticGradNorm"]);
const LOSSES: ReadonlySet<string> = new Set(["policyLoss", "valueLoss"]);

/**
 * Means over the update. The mean of a norm is over minibatches. The mean of a loss is over written tokens with the aggregation
 * "token-mean", otherwise over episodes. All other means are over written tokens. A mean leaves out the minibatches in which its number is
 * not finite. If the number is finite in no minibatch, the mean includes all minibatches.
 */
export function meansOf(minibatches: readonly MinibatchMetrics[], aggregation: Aggregation): Record<string, number> {
  const names = new Set(minibatches.flatMap(({ values }) => Object.keys(values)));
  const meanOf = (name: string) => {
    const finite = minibatches.filter(({ values }) => Number.isFinite(values[name]));
    const counted = finite.length > 0 ? finite : minibatches;
    const weights = counted.map(({ tokens, episodes }) => {
      if (NORMS.has(name)) return 1;
      return LOSSES.has(name) && aggregation !== "token-mean" ? episodes : tokens;
    });
    const all = weights.reduce((sum, weight) => sum + weight, 0);
    // The quotient of the weights comes first, so that the mean over one minibatch is exactly its value.
    return counted.reduce((sum, { values }, i) => sum + values[name]! * (weights[i]! / all), 0);
  };
  return Object.fromEntries([...names].map((name) => [name, meanOf(name)]));
}

interface WithObservations {
  readonly sequences: readonly Sequence[];
  readonly inputs: TokenInputs;
  /** Number of the env's tokens among the targets. */
  readonly observed: number;
}

/**
 * Adds to the targets the env's tokens that follow the first reply of a context. The forward pass reads these tokens anyway. A context's
 * first prompt is not a target, because no action of the policy led to it. At the env's tokens every other input is 0, and `observationWeights` is
 * coefficient / observed. So this term of the loss is the coefficient times the mean cross-entropy of the minibatch's env tokens.
 *
 * Source: ECHO, https://arxiv.org/abs/2605.24517.
 *
 * @param inputs [sequence][written token]
 */
export function withObservations(
  sequences: readonly Sequence[],
  inputs: TokenInputs,
  coefficient: number,
): WithObservations {
  const wide = sequences.map(({ tokens, written }) => ({
    tokens,
    written: Int32Array.from({ length: tokens.length - written[0]! }, (_, i) => written[0]! + i),
  }));
  const observed = wide.reduce((sum, { written }, i) => sum + written.length - sequences[i]!.written.length, 0);
  const spread = (values: ArrayLike<number>, i: number, elsewhere: number) => {
    const spreadValues = new Float32Array(wide[i]!.written.length).fill(elsewhere);
    const { written } = sequences[i]!;
    for (const [at, position] of written.entries()) spreadValues[position - written[0]!] = values[at]!;
    return spreadValues;
  };
  const widened = Object.entries(inputs).map(
    ([name, values]) => [name, values.map((row, i) => spread(row, i, 0))] as const,
  );
  const weights = sequences.map(({ written }, i) =>
    spread(new Float32Array(written.length), i, coefficient / Math.max(1, observed)),
  );
  return { sequences: wide, inputs: { ...Object.fromEntries(widened), observationWeights: weights }, observed };
}
