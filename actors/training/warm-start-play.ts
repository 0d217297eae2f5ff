/** The warm start as part of a run: validations of what the first stage taught, and a few boards played now and then. */
import { percent } from "../percent.ts";
import { playedOf } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";
import type { Interruption } from "./interruption.ts";
import type { Progress } from "./progress.ts";
import { validationTickets } from "./tickets-to-play.ts";
import { episodeRows } from "./trained-episodes.ts";
import { solvedShare, type Validation } from "./validation.ts";
import type { Taught, WarmStartHooks } from "./warm-start.ts";

/** Boards of one sample of play. */
const SAMPLE_BOARDS = 32;

/** @param publish  publishes the policy; resolves to the progress afterwards */
export async function playWarmStart(
  context: TrainingContext,
  interruption: Interruption,
  validation: Validation,
  publish: () => Promise<Progress>,
): Promise<Taught> {
  const { config, log, reporter, warmStart } = context;
  reporter.event("info", "phase", "warm start");
  const hooks = hooksOf(context, interruption, validation, publish);
  const { taught, cached } = await interruption.race(warmStart(hooks));
  reporter.metrics(0, { "baseline/taught": taught.cool });
  const by = config.warmStart.imitate === "random-play" ? "self-taught from random play" : "taught by a demonstrator";
  const from = cached ? ", from the cache" : "";
  log.line("taught", `${by}: ${percent(taught.cool)} (at temperature 1 ${percent(taught.one)})${from}`);
  return taught;
}

function hooksOf(
  context: TrainingContext,
  interruption: Interruption,
  validation: Validation,
  publish: () => Promise<Progress>,
): WarmStartHooks {
  const { config, dispatcher, log, reporter } = context;
  return {
    // These validations are not counted, so a run that finds its warm start in the cache has the same totals.
    async measureTaught() {
      const progress = await publish();
      const cool = await validation.apart("taught", config.validate.temperature, progress);
      const one = await validation.apart("taught", 1, progress);
      return { cool: cool.solved.success, one: one.solved.success };
    },
    async sample(stepOverall) {
      const { version } = await publish();
      const tickets = validationTickets(config, `warm${stepOverall}`, config.validate.temperature, version);
      const playing = dispatcher.play(tickets.slice(0, SAMPLE_BOARDS));
      const played = playedOf(await interruption.race(playing));
      if (played.length === 0) return;
      const success = solvedShare(played);
      reporter.metrics(stepOverall, { "warm/success": success });
      const { observation, reply } = played[stepOverall % played.length]!.outcome.turns[0]!;
      const turn = `"${observation.replaceAll("\n", " ")}" → ${reply}`;
      log.line("sample", `${percent(success)} of ${played.length} boards · ${turn}`);
      await interruption.race(reporter.episodes(episodeRows(played)));
    },
    progress({ stage, stages, name, step, steps, stepOverall, loss }) {
      reporter.metrics(stepOverall, { "warm/stage": stage, "warm/progress": step / steps, "warm/loss": loss });
      const text = `warm start ${stage}/${stages} "${name}" ${percent(step / steps)} · loss ${loss.toFixed(3)}`;
      log.line("warm", text);
    },
    checkStop: () => interruption.check(),
  };
}
