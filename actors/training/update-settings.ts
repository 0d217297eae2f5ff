/**
 * Computes the settings of one update from the config of a run. If one key makes another key useless, this file ignores the useless key.
 * config/unread.ts refuses a useless key, unless a higher layer of the config made it useless.
 */
import { NEEDS_CRITIC } from "../../model/learn/advantage/advantage.ts";
import { controlKl } from "../../model/learn/kl.ts";
import type { PolicyRule } from "../../model/learn/loss.ts";
import type { LossOn } from "../../model/learn/loss-mask.ts";
import type { OptimizerSettings } from "../../model/learn/optimizer.ts";
import type { CriticSettings, UpdateSettings } from "../../model/learn/update/types.ts";
import type { RoleMarks } from "../../model/text/dialogue.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import { envsWithRules } from "../play/envs-of-run.ts";
import { limitsOf } from "./warm-start.ts";

type LearnerConfig = RunConfig["learner"];

/** Weight of the value loss if the critic shares the policy's network. */
const SHARED_CRITIC_COEFFICIENT = 0.5;

export const needsCritic = ({ estimator }: LearnerConfig): boolean => NEEDS_CRITIC.has(estimator);

const hasOwnCritic = (learner: LearnerConfig) => needsCritic(learner) && learner.critic.backbone === "separate";

/** Settings that a run may change while it trains. `intervened` changes more settings. */
export interface Adapted {
  readonly klCoefficient: number;
  readonly entropyCoefficient: number;
  readonly covariance: LearnerConfig["covariance"]["treatment"];
}

/**
 * The rules of filter, estimator and covariance have the numbers of all their kinds; each kind reads its own.
 *
 * @param update  the first update has number 0; schedules and random draws depend on it
 */
export function updateSettings(config: RunConfig, update: number, adapted: Adapted, marks: RoleMarks): UpdateSettings {
  const { learner, rollout, seed } = config;
  const { klCoefficient, entropyCoefficient, covariance: treatment } = adapted;
  const { betas, weightDecay, gradClip, kl, critic, advantage, importance } = learner;
  const { gamma, lambda, gammaTurn, rewardAt, gigpo } = learner;
  const optimizer = {
    learningRate: learner.learningRate * decay(learner, update),
    beta1: betas[0],
    beta2: betas[1],
    epsilon: 1e-8,
    weightDecay,
    clipNorm: gradClip,
  };
  const divergence = klCoefficient === 0 ? null : { estimator: kl.estimator, coefficient: klCoefficient };
  return {
    filter: learner.filter,
    dropConstant: learner.resampleRoundsMax > 0,
    normalization: learner.rewardNormalization,
    overlong: overlongOf(config),
    estimator: { kind: learner.estimator, gamma, lambda, gammaTurn, rewardAt, normalize: gigpo.normalize },
    scaling: advantage,
    importance: importance.level === "none" ? null : { level: importance.level, cap: importance.cap },
    policy: {
      rule: ruleOf(learner),
      entropyCoefficient,
      kl: kl.place === "loss" ? divergence : null,
    },
    observationLoss: readsObservations(config) ? learner.observationLoss : 0,
    // The estimator tpo computes new advantages before each step, so a treatment of covariance would have no effect.
    covariance:
      learner.estimator === "tpo" || treatment === "none"
        ? null
        : { ...learner.covariance, treatment, draw: [seed, `covariance ${update}`] },
    klInReward: kl.place === "reward" ? divergence : null,
    lossOn: lossOnOf(learner, marks),
    aggregation: learner.aggregation,
    writtenTokensMax: turnsMaxOf(config) * rollout.replyTokensMax,
    epochs: learner.epochs,
    minibatch: learner.minibatch ?? { parts: rollout.onlineK },
    limits: limitsOf(learner),
    optimizer,
    critic: needsCritic(learner) ? criticOf(critic, optimizer) : null,
    temperature: rollout.temperature,
    trainPolicy: !hasOwnCritic(learner) || update >= critic.warmUpUpdates,
  };
}

/** False if `lossOn` already trains on the env's tokens, or if each context has only one turn: then no token of the env follows a reply. */
const readsObservations = ({ learner, prompt }: RunConfig) =>
  learner.lossOn === "replies" && prompt.context !== "single_turn";

/** @throws {RunError} if `lossOn` needs a role header before each reply, and this policy's prompts have none */
export function lossOnOf({ lossOn }: LearnerConfig, marks: RoleMarks): LossOn {
  if (lossOn === "replies") return lossOn;
  if (lossOn === "everything") return { turns: "all", marks };
  if (marks.beforeReplies) return { turns: "assistant", marks };
  throw new RunError(
    "learner.lossOn is assistant-turns, but nothing marks the beginning of a reply in this policy's prompts; use replies, or another --model",
  );
}

function ruleOf({ loss, clipLow, clipHigh, dualClip }: LearnerConfig): PolicyRule {
  if (loss === "reinforce") return { kind: loss };
  return loss === "ppo" ? { kind: loss, clipLow, clipHigh, dualClip } : { kind: loss, clipLow, clipHigh };
}

function overlongOf({ learner: { overlong }, rollout: { replyTokensMax } }: RunConfig): UpdateSettings["overlong"] {
  const { weight, margin } = overlong;
  return weight === 0 ? null : { weight, tokensMax: replyTokensMax, margin: margin * replyTokensMax };
}

function criticOf(critic: LearnerConfig["critic"], optimizer: OptimizerSettings): CriticSettings {
  const { backbone, valueClip, learningRate } = critic;
  return backbone === "shared"
    ? { backbone, valueClip, coefficient: SHARED_CRITIC_COEFFICIENT }
    : { backbone, valueClip, optimizer: { ...optimizer, learningRate } };
}

/** Largest number of turns of an episode, over all envs. */
const turnsMaxOf = (config: Pick<RunConfig, "env" | "prompt">): number =>
  Math.max(...envsWithRules(config).map(({ rules }) => rules.turnsMax));

/** Factor of the learning rate: always 1, or falling linearly from 1 to 0.1 at the last update. */
function decay({ decay, updates }: LearnerConfig, update: number): number {
  return decay === "none" ? 1 : 1 - 0.9 * (update / Math.max(1, updates - 1));
}

/**
 * The KL coefficient after an update. The measured KL changes an adaptive coefficient; a fixed coefficient stays.
 *
 * @param measured  KL of this update; ignored if it is not finite, because the coefficient would then never be finite again
 */
export function steeredKl(
  { control, target }: LearnerConfig["kl"],
  coefficient: number,
  measured: number | undefined,
  trajectories: number,
): number {
  if (measured === undefined || !Number.isFinite(measured) || control === "fixed") return coefficient;
  return controlKl(coefficient, target, measured, trajectories);
}

/**
 * The entropy coefficient after an update: `entropyStep` higher if the entropy is below its target, otherwise lower, but at least 0.
 *
 * Source: https://arxiv.org/abs/2505.22312. In the paper the coefficient may fall below 0. While the entropy is above the target, the paper's
 * coefficient has no effect.
 *
 * @param entropy  entropy of this update, in nats per token; ignored if it is not finite
 */
export function steeredEntropy(
  { entropyTarget, entropyStep }: Pick<LearnerConfig, "entropyTarget" | "entropyStep">,
  coefficient: number,
  entropy: number | undefined,
): number {
  if (entropyTarget === null || entropy === undefined || !Number.isFinite(entropy)) return coefficient;
  return Math.max(0, coefficient + (entropy < entropyTarget ? entropyStep : -entropyStep));
}
