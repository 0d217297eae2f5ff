/** The warm start as part of a run: validates the policy after the first stage, and at intervals lets the policy play a few boards. */
import { Refused } from "../../envs/outside/json-server.ts";
import { RunError } from "../errors.ts";
import { percent, timeLeft } from "../number-text.ts";
import { playedOf } from "../play/finished-ticket.ts";
import type { TrainingParts } from "./context.ts";
import type { Progress } from "./progress.ts";
import { validationTickets } from "./tickets-to-play.ts";
import { episodeRows } from "./trained-episodes.ts";
import { solvedShare, validateApart } from "./validation.ts";
import type { Taught, WarmStartHooks } from "./warm-start.ts";

/** Number of episodes in one sample of play, over all envs together. */
const SAMPLE_EPISODES = 32;

/** @param publish  publishes the policy; resolves to the progress after the publication */
export async function playWarmStart(parts: TrainingParts, publish: () => Promise<Progress>): Promise<Taught> {
  const { config, log, reporter, warmStart, interruption } = parts;
  reporter.event("info", "phase", "warm start");
  const { taught, cached } = await interruption.race(warmStart(hooksOf(parts, publish))).catch((error) => {
    // The env's server would refuse a restarted learner again.
    if (error instanceof Refused) throw new RunError(`the warm start cannot play: ${error.message}`, { cause: error });
    throw error;
  });
  reporter.metrics(0, { "baseline/taught": taught.cool });
  const by = config.warmStart.imitate === "random-play" ? "self-taught from random play" : "taught by a demonstrator";
  const from = cached ? ", from the cache" : "";
  log.line("taught", `${by}: ${percent(taught.cool)} (at temperature 1 ${percent(taught.one)})${from}`);
  return taught;
}

function hooksOf(parts: TrainingParts, publish: () => Promise<Progress>): WarmStartHooks {
  const { config, log, reporter, clock, interruption } = parts;
  let begunMs = clock.now();
  const stepsInAll = config.warmStart.stages.reduce((sum, { steps }) => sum + steps, 0);
  return {
    // The run's totals do not count these validations. So the totals are equal whether or not the run finds its warm start in the cache.
    async measureTaught(name) {
      const progress = await publish();
      const { temperature } = config.validate;
      const configured = await validateApart(parts, name, temperature, progress);
      const atOne = temperature === 1 ? configured : await validateApart(parts, name, 1, progress);
      return { cool: configured.solved.success, one: atOne.solved.success };
    },
    async sample(stepOverall) {
      const { version } = await publish();
      return { success: playSample(parts, stepOverall, version) };
    },
    progress({ stage, stages, name, step, steps, stepOverall, loss }) {
      const stepMinutes = (clock.now() - begunMs) / 60_000 / Math.max(1, stepOverall - 1);
      const minutesLeft = stepMinutes * (stepsInAll - stepOverall);
      const values = { "warm/stage": stage, "warm/progress": step / steps, "warm/loss": loss };
      reporter.metrics(stepOverall, { ...values, "warm/left_s": minutesLeft * 60 });
      const done = `warm start ${stage}/${stages} "${name}" ${percent(step / steps)}`;
      log.line("warm", `${done} · loss ${loss.toFixed(3)} · ${timeLeft(minutesLeft)}`);
    },
    begun() {
      begunMs = clock.now();
    },
    checkStop: () => interruption.check(),
  };
}

/** @returns the share of episodes that the policy solves; null if no episode could be played */
async function playSample(parts: TrainingParts, stepOverall: number, version: number): Promise<number | null> {
  const { config, dispatcher, log, reporter, interruption } = parts;
  const tickets = validationTickets(config, `warm${stepOverall}`, config.validate.temperature, version);
  const ofEnvs = [...Map.groupBy(tickets, ({ env }) => env).values()];
  const share = Math.ceil(SAMPLE_EPISODES / ofEnvs.length);
  const playing = dispatcher.play(ofEnvs.flatMap((ofEnv) => ofEnv.slice(0, share)));
  const played = playedOf(await interruption.race(playing));
  if (played.length === 0) return null;
  const success = solvedShare(played);
  reporter.metrics(stepOverall, { "warm/success": success });
  const { observation, reply } = played[stepOverall % played.length]!.outcome.turns[0]!;
  const turn = `"${observation.replaceAll("\n", " ")}" → ${reply}`;
  log.line("sample", `${percent(success)} of ${played.length} episodes · ${turn}`);
  await interruption.race(reporter.episodes(episodeRows(played)));
  return success;
}
