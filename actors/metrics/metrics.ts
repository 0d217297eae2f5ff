/**
 * The table of all metrics: name, unit, meaning. Actors, the store, the page, `/metrics` and `bun run metrics` read the table.
 * This file measures nothing and stores nothing.
 *
 * - A name that is not in the table is an error: `metricValues` throws.
 * - Two runs of equal seeds in sync mode give equal values of every metric that is not `timed`.
 * - The step of a value is the update that the value belongs to; for `warm/…`, the step of the warm start, counted over all stages.
 * - A resumed run repeats updates. So a later value for the same name, actor and step replaces the earlier value.
 */
import { COLLAPSE_METRICS, GRADIENT_METRICS } from "./collapse-rows.ts";
import type { Metric, Part, Unit } from "./metric.ts";

const gauge = (unit: Unit, help: string) => ({ unit, help, kind: "gauge" }) as const satisfies Metric;
/** Gauges of the three units that most rows have. */
const share = (help: string) => gauge("share", help);
const nats = (help: string) => gauge("nats", help);
const number = (help: string) => gauge("number", help);
const timed = (unit: Unit, help: string) => ({ unit, help, kind: "gauge", timed: true }) as const satisfies Metric;
const perActor = (unit: Unit, help: string) =>
  ({ unit, help, kind: "gauge", timed: true, perActor: true }) as const satisfies Metric;
const perEnv = (unit: Unit, help: string) => ({ unit, help, kind: "gauge", parts: "env" }) as const satisfies Metric;
const counter = (unit: Unit, help: string) => ({ unit, help, kind: "counter" }) as const satisfies Metric;
const timedCounter = (unit: Unit, help: string) => ({ ...counter(unit, help), timed: true }) as const;

const METRICS = {
  "baseline/random": perEnv("share", "Success of a uniform-random player on the validation boards."),
  "baseline/taught": share("Validation success after the warm start's first stage."),
  "baseline/before": perEnv("share", "Validation success before the first update."),
  "baseline/best": perEnv("share", "Success of the optimal player on the validation boards."),
  "baseline/expert": perEnv("share", "Validation success of a scripted expert, for envs without a known best success."),

  "validate/success": perEnv("share", "Share of validation episodes that the policy solved."),
  "validate/reward_mean": perEnv("reward", "Mean episode reward over validation episodes, without penalties."),
  "validate/turns": perEnv("turns", "Mean number of turns of a validation episode."),
  "validate/actions": perEnv("actions", "Mean number of executed actions of a validation episode."),
  "validate/format_errors": perEnv("share", "Share of validation turns whose reply was malformed."),
  "validate/pass": {
    ...share("Share of validation boards that the policy solves in at least one of k tries (unbiased estimate)."),
    parts: "k",
  },
  "validate/faithful_thoughts": share("Mean share of true claims in a thought, over thoughts with a checkable claim."),
  "validate/claiming_thoughts": share("Share of turns whose thought has a checkable claim."),
  "validate/fail_invalid_format": share(
    "Share of validation episodes that failed, and in which at least half of the replies were malformed.",
  ),
  "validate/fail_dead_end": share("Share of validation episodes that failed in a state that made success impossible."),
  "validate/fail_premature_stop": share("Share of validation episodes that a wrong answer or choice ended."),
  "validate/fail_local_cycle": share(
    "Share of validation episodes that failed, and in which at least half of the turns led back to an earlier state.",
  ),
  "validate/fail_budget": share("Share of validation episodes that failed only for lack of actions, turns or context."),

  "train/success": perEnv("share", "Share of the update's episodes that the policy solved, before filtering."),
  "train/reward_mean": perEnv("reward", "Mean episode reward before filtering, without penalties."),
  "train/penalty_mean": gauge("reward", "Mean penalty of an episode: malformed replies and false claims; 0 or less."),
  "train/in_group_std": perEnv("reward", "Mean in-group standard deviation of the raw reward, before filtering."),
  "train/zero_std_groups": share("Share of groups whose episodes all have the same reward, before filtering."),
  "train/kept_groups": share("Share of played groups that the filter kept."),
  "train/kept_in_group_std": gauge("reward", "Mean in-group standard deviation of the raw reward, over kept groups."),
  "train/entropy": nats("Mean entropy of the policy's next-token distribution over written tokens."),
  "train/solved_log_prob": nats("Mean log-probability of a written token in solved episodes, at sampling temperature."),
  "train/grad_norm": number("Minibatch mean of the policy's gradient L2 norm before clipping, if finite."),
  "train/critic_grad_norm": number("Minibatch mean of the critic's gradient L2 norm before clipping, if finite."),
  "train/learning_rate": number("Step size of the policy's optimizer in this update."),
  "train/reply_tokens": gauge("tokens", "Mean number of tokens that the policy wrote in an episode."),
  "train/think_tokens": gauge("tokens", "Mean number of tokens inside <think> in an episode."),
  "train/turns": perEnv("turns", "Mean number of turns of an episode."),
  "train/actions": perEnv("actions", "Mean number of executed actions of an episode."),
  "train/format_errors": perEnv("share", "Share of turns whose reply was malformed."),
  "train/effective": perEnv("share", "Share of turns whose last action changed the state."),
  "train/valid": share("Share of turns whose last action the env accepts as valid."),
  "train/thinking_rate": share("Share of turns whose reply has a complete thought that is not empty."),
  "train/faithful_thoughts": share("Mean share of true claims in a thought, over thoughts with a checkable claim."),
  "train/claiming_thoughts": share("Share of turns whose thought has a checkable claim."),
  "train/repetition": share("Mean share of an episode's 4-grams of written tokens that occurred earlier in it."),
  "train/cut_replies": share("Share of replies that the sampler cut at their maximum number of tokens."),
  "train/pass_at_group": perEnv("share", "Share of groups with at least one solved episode; RAGEN's pass@N."),
  "train/groups": perEnv("groups", "Groups played for the update, including groups that replaced other groups."),
  "train/optimizer_steps": number("Steps of the policy's optimizer in this update."),
  "curriculum/score": perEnv(
    "number",
    "Moving average of an env's success (curriculum by difficulty), or of the env's in-group standard deviation (other curricula).",
  ),
  "curriculum/level": number(
    "Place in env.mix, from 1, of the first env that is not learned; if all are learned, of the last env (curriculum by difficulty).",
  ),
  "train/contexts": number("Mean number of contexts of an episode; a new one begins where the prompt drops turns."),
  "train/overflowed_turns": share("Share of turns whose prompt left out earlier turns for lack of context."),
  "train/stop_success": share("Share of episodes that ended because the policy solved them."),
  "train/stop_over": share("Share of episodes that the game ended without success."),
  "train/stop_actions": share("Share of episodes that ended because they used up their actions."),
  "train/stop_turns": share("Share of episodes that ended because they used up their turns."),
  "train/stop_context": share("Share of episodes that ended because the context was full."),
  "train/scored_episodes": gauge("episodes", "Episodes of the update that the game ended, with or without success."),
  "train/truncated_episodes": gauge("episodes", "Episodes ended by a limit of actions, turns or context; trained on."),
  "train/env_errors": gauge("episodes", "Episodes of the update whose last attempt failed in the env."),
  "train/aborted_episodes": gauge("episodes", "Episodes of the update whose last attempt failed outside the env."),
  "train/failed_episodes": gauge("episodes", "Sum of env_errors and aborted_episodes; no update trains on them."),
  "train/log_prob_gap": nats("Mean absolute difference of sampler and learner in a written token's log-probability."),
  "train/staleness": gauge("updates", "Mean lag of trained episodes behind the newest policy version, in updates."),
  "train/lag_0": share("Share of trained episodes played by the newest policy version."),
  "train/lag_1": share("Share of trained episodes played by the policy version one update before the newest."),
  "train/lag_2": share("Share of trained episodes played by the policy version two updates before the newest."),
  "train/lag_more": share("Share of trained episodes played by a version three or more updates before the newest."),
  "train/mixed_episodes": share("Share of trained episodes whose turns have several policy versions."),
  "train/advantage_abs": number("Mean absolute advantage over written tokens of kept episodes."),
  "train/covariance": number(
    "Covariance of log-probability and advantage over written tokens of kept episodes; the larger the covariance, the faster entropy falls.",
  ),
  "train/held_tokens": share("Share of written tokens that learner.covariance treats."),
  "train/explained_variance": number(
    "1 - var(return - value) / var(return), over written tokens; a perfect critic has the value 1.",
  ),
  "train/critic_share": share("Weight of the critic in the hybrid advantage; the group's baseline has the rest."),
  "train/overlong_mean": gauge("reward", "Mean penalty of an episode for overlong replies; 0 or negative."),
  "train/importance_mean": number("Mean importance weight of a written token: learner's probability / sampler's."),
  "train/importance_capped": share("Share of written tokens whose importance weight was cut to the cap."),
  "train/kl_coefficient": number("Weight of the KL term in this update."),
  "train/entropy_coefficient": number("Weight of the entropy bonus in this update."),
  "train/replaced_groups": gauge(
    "groups",
    "Groups that the run replaced by new groups, because all episodes earned the same reward or none could be played.",
  ),

  "loss/policy": number("Policy loss of the update, without the other terms of the loss."),
  "loss/value": number("Clipped value loss of the critic."),
  "loss/clip_fraction_high": share("Share of written tokens whose ratio was clipped at 1 + clipHigh."),
  "loss/clip_fraction_low": share("Share of written tokens whose ratio was clipped at 1 - clipLow."),
  "loss/dual_clip_fraction": share("Share of written tokens whose ratio was clipped at dualClip."),
  "loss/value_clip_fraction": share("Share of written tokens whose clipped value error exceeded the unclipped error."),
  "loss/kl": nats("Mean KL estimate between the policy and its reference, over written tokens."),
  "loss/observation": nats("Mean cross-entropy of the env's tokens after a context's first reply, over kept episodes."),
  "loss/ratio_kl": nats("Mean old minus new log-probability over written tokens: how far the update moved the policy."),

  "health/verdict": number("Verdict of the Echo Trap detector: 0 healthy, 1 solved, 2 warning, 3 collapsed."),
  "health/interventions": counter("number", "Number of interventions of health.ladder that the run has taken."),
  "health/rollbacks": counter("number", "Number of times that the run went back to its last healthy checkpoint."),
  "health/stopped_early": number("1 at the update after which health.stopEarly or health.ladder ended the run."),

  ...COLLAPSE_METRICS,
  ...GRADIENT_METRICS,
  "speed/collapse_s": timed("seconds", "Time to score thoughts under each other's prompts."),

  "warm/stage": number("Number of the warm start's current stage (warmStart.stages), from 1."),
  "warm/progress": share("Share of the steps of this stage that the warm start has made."),
  "warm/loss": nats("Mean cross-entropy of the tokens that the policy imitates."),
  "warm/left_s": timed("seconds", "Estimated time until the warm start ends, at its speed so far."),
  "warm/success": share("Share of 32 validation episodes that the policy solves; measured every 200 warm-start steps."),

  "speed/tokens_per_second": timed("tokens/s", "Tokens that all samplers together write in a second of rollout."),
  "speed/updates_per_minute": timed("updates/min", "Mean since reinforcement began, with validations and checkpoints."),
  "speed/left_s": timed("seconds", "Time until learner.updates or learner.minutes ends the run, at its speed so far."),
  "speed/rollout_s": timed("seconds", "Time to play an update's episodes, after the previous rollout if they overlap."),
  "speed/update_s": timed("seconds", "Time from the end of an update's rollout to the publication of its new weights."),
  "speed/validate_s": timed("seconds", "Time of one validation."),
  "speed/checkpoint_s": timed("seconds", "Time to write one checkpoint."),
  "weights/publish_ms": timed(
    "milliseconds",
    "Time from the start of publishing an update's weights until all samplers have acknowledged the weights' digest.",
  ),

  "total/episodes": counter("episodes", "Finished episodes, those of validations included."),
  "total/tokens": counter("tokens", "Tokens that the policy wrote, those of validations included."),
  "total/actions": counter("actions", "Actions that envs executed, those of validations included."),
  "total/updates": counter("updates", "Finished updates."),
  "total/expired_tickets": timedCounter("episodes", "Number of times that a ticket's lease (rollout.leaseMs) expired."),
  "total/retried_tickets": timedCounter(
    "episodes",
    "Tickets that the learner issued again, because the lease expired, the sampler was lost, or the attempt failed.",
  ),
  "total/ignored_outcomes": timedCounter("episodes", "Ignored outcomes: of finished, unknown or reissued tickets."),
  "total/skipped_updates": counter(
    "updates",
    "Updates that trained on no episode, or left out an optimizer step because a gradient was not finite.",
  ),

  "time/policy": perActor("share", "Share of time in which a sampler generated replies or waited for the policy."),
  "time/env": perActor("share", "Share of time in which all episodes of a sampler waited for env servers."),
  "time/weights": perActor("share", "Share of time in which a sampler loaded weights, or the learner published them."),
  "time/tickets": perActor("share", "Share of time in which a sampler waited for tickets."),
  "time/rollout": perActor("share", "Share of time in which the learner waited for episodes."),
  "time/update": perActor("share", "Share of time in which the learner computed an update or a warm-start step."),
  "time/save": perActor("share", "Share of time in which the learner wrote checkpoints."),
  "time/busy": perActor("share", "Share of time in which an env server computed, or waited for an outside env."),
  "queue/waiting": perActor(
    "episodes",
    "Waiting tickets: at the learner, tickets that wait for a sampler; at a sampler, tickets that wait for a free slot or for weights.",
  ),
  "queue/playing": perActor("episodes", "Episodes that the learner leased, a sampler plays, or an env server holds."),
  "queue/rows": perActor("episodes", "Finished episodes that wait at the learner to be stored."),
  "queue/messages": perActor(
    "messages",
    "Waiting metrics and events: at the learner, those that wait for the sink; at the sink, those that wait for the store.",
  ),
  "weights/version": perActor("number", "Policy version that a sampler loaded, or that the learner published last."),
  "speed/actor_tokens_per_second": perActor("tokens/s", "Tokens that a sampler writes per second."),
  "speed/env_steps_per_second": perActor("steps/s", "Turns that an env server plays per second."),
  "speed/sent_bytes_per_second": perActor("bytes/s", "Bytes of messages that an actor sends per second."),
  "speed/received_bytes_per_second": perActor("bytes/s", "Bytes of messages that an actor receives per second."),
  "process/rss_bytes": perActor("bytes", "Resident memory of the actor's process."),
  "process/cpu_seconds": perActor("seconds", "Processor time of the actor's process since it started."),
  "machine/energy_joules": perActor(
    "joules",
    "Energy that the machine's processor packages used for all programs since the learner's process started (RAPL).",
  ),
  "sink/dropped_messages": timedCounter("messages", "Metrics and events that the sink could not write and dropped."),
} as const satisfies Record<string, Metric>;

export type MetricName = keyof typeof METRICS;
/** Some metrics at one step. */
export type MetricValues = Partial<Record<MetricName, number>>;
export const METRIC_NAMES = Object.keys(METRICS) as readonly MetricName[];

/** "train/success{env=FrozenLake}": the name of one part of a metric. */
const PARTED = /^([^{}]+)\{(env|k)=([\w.-]+)\}$/;

/** The name of one part of a metric. The type is `MetricName`, so all code that takes a metric's name takes this name too. */
export const partName = (name: MetricName, part: Part, value: string | number): MetricName =>
  `${name}{${part}=${value}}` as MetricName;

/** The row of the table that a name belongs to, and the name's part; `part` is null if the name has no part. */
export function splitName(name: string): { row: string; part: readonly [Part, string] | null } {
  const [, row, part, value] = PARTED.exec(name) ?? [];
  return row === undefined ? { row: name, part: null } : { row, part: [part as Part, value!] };
}

export function isMetricName(name: string): name is MetricName {
  const { row, part } = splitName(name);
  if (!Object.hasOwn(METRICS, row)) return false;
  return part === null || (METRICS[row as MetricName] as Metric).parts === part[0];
}

/** True for a metric that does not depend on time. In sync mode such a metric is equal in all runs of one seed. */
export const isTimeIndependent = (name: string): boolean => isMetricName(name) && metric(name).timed !== true;

/** The row of one metric, as a `Metric`. With this type code can read optional fields that the row leaves out. */
export const metric = (name: MetricName): Metric => METRICS[splitName(name).row as MetricName];

/** Checks metrics when an actor reports them. @throws {RangeError} if a name is not in the table, or a value is not a finite number */
export function metricValues(values: Partial<Record<MetricName, number>>): Record<string, number> {
  for (const [name, value] of Object.entries(values)) {
    if (!isMetricName(name))
      throw new RangeError(`no metric named "${name}"; add it to METRICS in actors/metrics/metrics.ts`);
    if (!Number.isFinite(value)) {
      throw new RangeError(`${name} is ${value}; a metric must be finite; leave it out and report an event instead`);
    }
  }
  return { ...values };
}

/** Event kinds that the page interprets. The page only lists events of other kinds. */
export const EVENT_KINDS = {
  /** The text is the engine and its device, "compiled, cpu, 2 threads". */
  engine: "engine",
  /** The text is what the run does now: "warm start" or "reinforcement". */
  phase: "phase",
  /** The run made its report; the text is "40 updates, success 52.0 %". */
  finished: "finished",
  /** The metrics sink stopped normally; this session has no later event. */
  closed: "closed",
  /** The Echo Trap detector's verdict changed; the text is "update 12: collapsed: reason; reason", or "update 12: health: solved". */
  health: "health",
  /** The run took an intervention of health.ladder; the text says which one, what changes, and why. */
  intervention: "intervention",
  /** The run ends before its last update; the text says why. */
  earlyStop: "early-stop",
} as const;
