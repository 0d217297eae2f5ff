/** What a run shows of its warm start while it goes on: how far it is, and how the policy plays by now. */

import type { PlayedTicket } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";
import { episodeRows } from "./trained-episodes.ts";
import { percent } from "./update-metrics.ts";
import type { WarmStartProgress } from "./warm-start.ts";

type Voice = Pick<TrainingContext, "reporter" | "say">;

export function showWarmProgress({ reporter, say }: Voice, progress: WarmStartProgress): void {
  const { stage, stages, name, step, steps, stepOverall, loss } = progress;
  reporter.metrics(stepOverall, { "warm/stage": stage, "warm/progress": step / steps, "warm/loss": loss });
  say("warm", `warm start ${stage}/${stages} "${name}" ${percent(step / steps)} · loss ${loss.toFixed(3)}`);
}

/** Resolves when the log has room for more. @param played  at least one */
export async function showWarmSample(
  { reporter, say }: Voice,
  stepOverall: number,
  played: readonly PlayedTicket[],
): Promise<void> {
  const success = played.filter(({ outcome }) => outcome.success).length / played.length;
  reporter.metrics(stepOverall, { "warm/success": success });
  const { observation, reply } = played[stepOverall % played.length]!.outcome.turns[0]!;
  const shown = `"${observation.replaceAll("\n", " ")}" → ${reply}`;
  say("sample", `${percent(success)} of ${played.length} boards · ${shown}`);
  await reporter.episodes(episodeRows(played));
}
