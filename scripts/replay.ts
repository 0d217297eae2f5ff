/**
 * `bun run replay`: plays a recorded episode again and compares the new episode with the record, byte for byte. The command always replays the
 * env. It also replays the policy, if a checkpoint still holds the weights that wrote the episode.
 */
import { join } from "node:path";
import { checkpointsIn } from "../actors/checkpoint/checkpoint.ts";
import { realClock } from "../actors/clock.ts";
import { visible } from "../actors/dashboard/client/text.ts";
import { messageOf } from "../actors/errors.ts";
import { type Difference, type Replay, replayEnv, replayWhole, weightsDifference } from "../actors/evaluate/replay.ts";
import type { RecordedEpisode } from "../actors/metrics-sink/records.ts";
import { plural } from "../actors/number-text.ts";
import { withLocalModules } from "../actors/play/env-modules.ts";
import { policyOf } from "../actors/policy/pretrained.ts";
import {
  publishedDigest,
  readRunConfig,
  type SavedPolicy,
  savedPolicy,
  startPolicyThread,
} from "../actors/policy/saved-policy.ts";
import type { PolicyVersion } from "../actors/protocol.ts";
import { RecordedRun } from "../actors/record/recorded-run.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { warn } from "./cli/print.ts";

/** For a name that the run has not recorded, the error names the nearest among this many newest episodes. */
const NEWEST_MAX = 1000;

export const command = {
  words: {
    show: "EPISODE",
    text: "Number of the episode, as the page shows it, or its name, such as u3.g0.m1",
    max: 1,
  },
  flags: {
    run: flag.text("RUN", "Folder of the run that recorded the episode"),
    "env-only": flag.switch("Play the recorded replies in the env, and load no policy"),
    show: flag.switch("Print the episode turn by turn"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run replay 1200 --run runs/2026-11-20-simplesokoban-1",
    "bun run replay u80.g0.m3 --run runs/2026-11-20-simplesokoban-1 --show",
  ],
} as const satisfies Command;

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const [name] = words;
  const { run: folder, show, json } = flags;
  if (name === undefined) throw new UsageError("name an episode: its number, or its name such as u3.g0.m1");
  if (folder === undefined) throw new UsageError("name the run that recorded the episode: --run RUN");
  const config = withLocalModules(readRunConfig(folder));
  using run = new RecordedRun(folder);
  const { summary, row } = recordedEpisode(run, folder, name);
  const { outcome, ticket } = row;
  if (!("trajectory" in outcome)) throw new Error(`${summary.episode} was not played: ${outcome.detail}`);
  if (show) printEpisode(outcome);
  const replay = { config, ticket, recorded: outcome, dialogue: policyOf(config).dialogue, clock: realClock, warn };
  const others = run.store.versionsSharing(summary.id, outcome.trajectory);
  const env = await replayEnv(replay);
  const policy = flags["env-only"] ? { skipped: "--env-only" } : await replayPolicy(folder, replay, others);
  console.log(
    `${summary.episode} of ${summary.env}, layout seed ${summary.layoutSeed}, ${plural(summary.turnCount, "turn")}`,
  );
  console.log(`env     ${verdict(env)}`);
  console.log(
    `policy  ${policy !== null && "skipped" in policy ? `not replayed: ${policy.skipped}` : verdict(policy)}`,
  );
  const equal = env === null && (policy === null || "skipped" in policy);
  if (json) {
    console.log(JSON.stringify({ episode: summary.episode, env: env ?? "equal", policy: policy ?? "equal", equal }));
  }
  return equal ? 0 : 1;
}

function recordedEpisode({ store }: RecordedRun, folder: string, name: string): RecordedEpisode {
  const id = /^\d+$/.test(name) ? Number(name) : store.episodeNamed(name);
  const found = id === null ? null : store.episode(id);
  if (found !== null) return found;
  const newest = store.episodes({}, { limit: NEWEST_MAX }).rows;
  const near = nearest(
    name,
    newest.map(({ episode }) => episode),
  );
  throw new UsageError(
    `${folder} has recorded no episode ${name}${near === null ? `; the page lists the episodes: bun run page ${folder}` : didYouMean(near)}`,
  );
}

/**
 * Replays with the weights that wrote the episode, if a checkpoint still holds them.
 *
 * @param others  weights recorded with other episodes of the run
 */
async function replayPolicy(
  folder: string,
  replay: Replay,
  others: readonly PolicyVersion[],
): Promise<Difference | null | { skipped: string }> {
  const { config, recorded } = replay;
  const { version, digest, turns } = recorded.trajectory;
  if (config.engine.name === "tinker" || config.sampler.engine !== "own")
    return { skipped: "a server wrote the replies with its own sampler" };
  const versions = turns.map((turn) => turn.version ?? version);
  if (versions.some((one) => one !== version))
    return {
      skipped: `the episode began with policy version ${version}, and versions ${versions.join(", ")} wrote its turns`,
    };
  const distance = ({ update }: { update: number }) => Math.abs(update - version);
  const checkpoints = checkpointsIn(join(folder, "checkpoints")).sort((a, b) => distance(a) - distance(b));
  const names = checkpoints.map(({ name }) => name);
  const known: PolicyVersion[] = [...others];
  const unread: string[] = [];
  for (const name of names) {
    const saved = await savedPolicy(folder, config, name).catch((error) => {
      unread.push(`${name}: ${messageOf(error)}`);
      return null;
    });
    if (saved === null) continue;
    const weights = { version: saved.publishedVersion, digest: publishedDigest(saved, config) };
    known.push(weights);
    if (weights.digest !== digest) continue;
    const difference = weightsDifference(recorded.trajectory, known);
    return difference ?? (await replayWith(saved, replay, { version, digest: weights.digest }));
  }
  const difference = weightsDifference(recorded.trajectory, known);
  if (difference !== null) return difference;
  const held = names.length === 0 ? "it has no checkpoints" : `its checkpoints are ${names.join(", ")}`;
  const damaged = unread.length === 0 ? "" : `; not readable: ${unread.join("; ")}`;
  return { skipped: `no checkpoint holds policy version ${version}; ${held}${damaged}` };
}

async function replayWith(saved: SavedPolicy, replay: Replay, weights: PolicyVersion): Promise<Difference | null> {
  const thread = await startPolicyThread(saved, replay.config, 1, replay.warn);
  try {
    return await replayWhole(replay, thread.methods, weights);
  } finally {
    thread.stop();
  }
}

const verdict = (difference: Difference | null) =>
  difference === null
    ? "equal to the record, byte for byte"
    : `differs at ${difference.where}: recorded ${shown(difference.recorded)}, now ${shown(difference.replayed)}`;

const SHOWN_MAX = 200;
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return visible(text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text);
}

function printEpisode({ turns, finalObservation, stop, success }: Replay["recorded"]): void {
  for (const [i, { observation, reply, actions, reward, penalty }] of turns.entries()) {
    console.log(`--- turn ${i + 1}\n${visible(observation)}\n> ${visible(reply)}`);
    console.log(visible(`  executed ${actions.join(", ") || "nothing"}; reward ${reward}, penalty ${penalty}`));
  }
  console.log(visible(`--- ${success ? "solved" : "not solved"} (${stop})\n${finalObservation}\n`));
}
