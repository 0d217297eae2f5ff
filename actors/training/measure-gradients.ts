/**
 * When the policy's gradients are measured, and on which episodes: those of the update, or groups played for it alone, as an
 * update has too few for six buckets. The measuring is model/health/gradient-analysis.ts.
 *
 * - What is played for it enters no loss, no count and no record; the same boards are met again in later updates.
 *
 * Source: RAGEN-2, trainer.gradient_analysis_every and gradient_analysis_env_groups (its experiments: 50 and 128).
 */
import type { TrainingEpisode, UpdateSettings } from "../../model/learn/update/types.ts";
import type { RunConfig } from "../config/config.ts";
import { boardsPerUpdate } from "../play/envs-of-run.ts";
import { playedOf, unplayedText } from "../play/finished-ticket.ts";
import type { Ticket } from "../protocol.ts";
import type { TrainingContext } from "./context.ts";
import { trainingTickets } from "./tickets-to-play.ts";
import { trainerInput } from "./trained-episodes.ts";
import { learnt, type Values } from "./update-metrics.ts";

type Context = Pick<TrainingContext, "config" | "play" | "trainer" | "warn">;

export interface Moment {
  /** From 0. */
  readonly update: number;
  readonly version: number;
  /** How often the run was rolled back. */
  readonly round: number;
  /** Of each group of the update. */
  readonly envs: readonly string[];
}

/** @param own  the update's episodes. @returns nothing if this update is not measured */
export async function measureGradients(
  context: Context,
  moment: Moment,
  own: readonly TrainingEpisode[],
  settings: UpdateSettings,
): Promise<Values> {
  const { everyUpdates, split, groups } = context.config.learner.gradientAnalysis;
  if (everyUpdates === 0 || moment.update % everyUpdates !== 0) return {};
  const played = groups === 0 ? own : await playApart(context, moment, settings);
  return played.length === 0 ? {} : learnt(await context.trainer.analyzeGradients(played, settings, split));
}

async function playApart(
  { config, play, warn }: Context,
  moment: Moment,
  settings: UpdateSettings,
): Promise<TrainingEpisode[]> {
  const finished = await play(analysisTickets(config, moment));
  const played = playedOf(finished);
  if (played.length < finished.length) warn("gradients", `update ${moment.update + 1}: ${unplayedText(finished)}`);
  return trainerInput(played, settings);
}

/** Numbered behind all groups that the update may have, in its env's proportions. */
function analysisTickets(config: RunConfig, { update, version, round, envs }: Moment): Ticket[] {
  const first = boardsPerUpdate(config);
  const wanted = Array.from({ length: config.learner.gradientAnalysis.groups }, (_, i) => ({
    group: first + i,
    env: envs[i % envs.length]!,
  }));
  return trainingTickets(config, update, version, round, wanted);
}
