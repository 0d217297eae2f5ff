/**
 * Gradient analysis: when the policy's gradients are measured (model/health/gradient-analysis.ts), and on which episodes. These are the
 * update's own, or groups played for the analysis alone, because an update may have too few groups for the six buckets.
 *
 * - Episodes played for the analysis enter no loss, no count and no record. Their boards come again in later updates.
 *
 * Source: RAGEN-2, trainer.gradient_analysis_every and gradient_analysis_env_groups (its experiments: 50 and 128).
 */
import type { TrainingEpisode, UpdateSettings } from "../../model/learn/update/types.ts";
import type { RunConfig } from "../config/config.ts";
import type { MetricValues } from "../metrics/metrics.ts";
import { boardsPerUpdate } from "../play/envs-of-run.ts";
import { playedOf, unplayedText } from "../play/finished-ticket.ts";
import type { Ticket } from "../protocol.ts";
import type { TrainingContext } from "./context.ts";
import type { Control } from "./interventions.ts";
import { trainingTickets } from "./tickets-to-play.ts";
import { trainerInput } from "./trained-episodes.ts";
import { trainerMetrics } from "./update-metrics.ts";

type Context = Pick<TrainingContext, "config" | "dispatcher" | "trainer" | "log">;

export interface Moment {
  /** From 0. */
  readonly update: number;
  readonly version: number;
  /** How often the run was rolled back, and the factor of a turn's actions. */
  readonly control: Pick<Control, "round" | "actions">;
  /** Env of each group of the update. */
  readonly envs: readonly string[];
}

/** @param own  the update's episodes. @returns no values if this update is not measured */
export async function measureGradients(
  context: Context,
  moment: Moment,
  own: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Promise<MetricValues> {
  const { everyUpdates, split, groups } = context.config.learner.gradientAnalysis;
  if (everyUpdates === 0 || moment.update % everyUpdates !== 0) return {};
  const played = groups === 0 ? own : await playApart(context, moment);
  return played.length === 0 ? {} : trainerMetrics(await context.trainer.analyzeGradients(played, settings, split));
}

async function playApart({ config, dispatcher, log }: Context, moment: Moment): Promise<TrainingEpisode[]> {
  const finished = await dispatcher.play(analysisTickets(config, moment));
  const played = playedOf(finished);
  if (played.length < finished.length)
    log.event("warning", "gradients", `update ${moment.update + 1}: ${unplayedText(finished)}`);
  return trainerInput(played);
}

/** Groups numbered after all that the update may have, in the proportions of the update's envs. */
function analysisTickets(config: RunConfig, { update, version, control: { round, actions }, envs }: Moment): Ticket[] {
  const first = boardsPerUpdate(config);
  const wanted = Array.from({ length: config.learner.gradientAnalysis.groups }, (_, i) => ({
    group: first + i,
    env: envs[i % envs.length]!,
  }));
  return trainingTickets(config, update, version, round, wanted, actions);
}
