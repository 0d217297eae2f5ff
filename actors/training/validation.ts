/** Lets the policy play the validation boards, and reports the share of episodes that the policy solved. */
import { percent } from "../number-text.ts";
import { tagOf } from "../play/envs-of-run.ts";
import { type PlayedTicket, playedOf, playedTotals, unplayedError } from "../play/finished-ticket.ts";
import { behaviorMetrics } from "./behavior.ts";
import type { TrainingParts } from "./context.ts";
import type { Progress, Solved } from "./progress.ts";
import { rolloutMetrics } from "./rollout-metrics.ts";
import { batchName, validationTickets } from "./tickets-to-play.ts";
import { episodeRows } from "./trained-episodes.ts";

export interface Validated {
  readonly solved: Solved;
  readonly totals: ReturnType<typeof playedTotals>;
}

/** The validation of an update, with its metrics. */
export function validateUpdate(parts: TrainingParts, progress: Progress): Promise<Validated> {
  const name = batchName("v", progress.update, progress.health.control.round);
  return validate(parts, name, parts.config.validate.temperature, progress, true);
}

/** A validation without metrics. @param name  unique among validations at this temperature */
export const validateApart = (parts: TrainingParts, name: string, temperature: number, progress: Progress) =>
  validate(parts, name, temperature, progress, false);

/** @throws {Error} if a sampler could not play an episode: success on fewer boards cannot be compared with other validations */
async function validate(
  { config, clock, dispatcher, log, reporter, interruption, playTime }: TrainingParts,
  name: string,
  temperature: number,
  progress: Progress,
  hasMetrics: boolean,
): Promise<Validated> {
  const started = clock.now();
  const tickets = validationTickets(config, name, temperature, progress.version);
  const { finished } = await interruption.race(playTime.measure(dispatcher.play(tickets)));
  const played = playedOf(finished);
  if (played.length < finished.length) throw unplayedError(config, `validation ${name}`, finished);
  if (hasMetrics) {
    reporter.metrics(progress.update, {
      ...rolloutMetrics("validate", played),
      ...behaviorMetrics("validate", played, (env) => tagOf(config, env)),
      "speed/validate_s": (clock.now() - started) / 1000,
    });
  }
  const solved = solvedOf(played);
  const text = `success ${solvedText(solved)} of ${played.length} episodes`;
  log.line("validate", `${name} at temperature ${temperature}: ${text}`);
  await interruption.race(reporter.episodes(episodeRows(played)));
  return { solved, totals: playedTotals(played) };
}

export const solvedShare = (played: readonly PlayedTicket[]): number =>
  played.filter(({ outcome }) => outcome.success).length / played.length;

function solvedOf(played: readonly PlayedTicket[]): Solved {
  const byEnv = Map.groupBy(played, ({ ticket }) => ticket.env);
  const envs = byEnv.size > 1 ? [...byEnv].map(([env, own]) => [env, solvedShare(own)] as const) : [];
  return { success: solvedShare(played), envs: Object.fromEntries(envs) };
}

/** "40.0 %", "40.0 % (FrozenLake 30.0 %, Bandit 50.0 %)". */
function solvedText({ success, envs }: Solved): string {
  const parts = Object.entries(envs).map(([env, own]) => `${env} ${percent(own)}`);
  return parts.length === 0 ? percent(success) : `${percent(success)} (${parts.join(", ")})`;
}

export const lowestSuccess = ({ success, envs }: Solved): number => Math.min(success, ...Object.values(envs));
