/**
 * Writes the record of a run for other tools: metrics as TensorBoard event files; metrics, events and episodes as tables; episodes as
 * chats. An export that fails leaves nothing behind.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { EpisodeSummary } from "../../actors/dashboard/answers.ts";
import type { EpisodeFilter } from "../../actors/metrics-sink/records.ts";
import { withLocalModules } from "../../actors/play/env-modules.ts";
import { envNames, episodeRules, tagOf } from "../../actors/play/envs-of-run.ts";
import { limitOf } from "../../actors/play/play-turns.ts";
import { whole } from "../../actors/policy/export.ts";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import { chatsOf } from "../../actors/record/chat-lines.ts";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import { EventFiles } from "../../actors/record/tensorboard.ts";
import { UsageError } from "../cli/options.ts";
import { type Columns, named, type Row, writeCsv, writeParquet, writeText } from "./tables.ts";

export interface RecordsExport {
  readonly folder: string;
  readonly out: string;
  /** Episodes to write, for formats that hold episodes. */
  readonly episodes: EpisodeFilter;
}

/** Numbers of written rows or files, by kind. */
export type Counts = Readonly<Record<string, number>>;

/** Event files: the run's metrics in `out`, the metrics per actor in `out/ACTOR`. */
export function exportTensorboard({ folder, out }: RecordsExport): Promise<Counts> {
  return reading(folder, out, {}, (run, pending) => {
    mkdirSync(pending);
    const events = new EventFiles(pending, run.facts.startedMs);
    for (const point of run.store.pointsAfter(0)) events.add(point);
    events.flush();
    return { points: events.pointCount, files: events.fileCount };
  });
}

/** A file with one chat a line: `{"messages": [{role, content} …], env, reward, success, …}`. */
export function exportChats({ folder, out, episodes }: RecordsExport): Promise<Counts> {
  const config = withLocalModules(readRunConfig(folder));
  const envOf = (name: string) => {
    const tag = tagOf(config, name);
    return { tag, rules: episodeRules(config, name, tag) };
  };
  const envs = new Map<string, ReturnType<typeof envOf>>();
  return reading(folder, out, episodes, async (run, pending) => {
    const counts = { episodes: 0, chats: 0 };
    function* lines() {
      for (const { summary, row } of run.episodes({ ...episodes, failed: false })) {
        if (!("trajectory" in row.outcome)) continue;
        const { tag, rules } = envs.getOrInsertComputed(summary.env, envOf);
        counts.episodes++;
        for (const messages of chatsOf(row.outcome, tag, config, { ...rules, ...limitOf(row.ticket) })) {
          yield `${JSON.stringify({ messages, ...common(summary) })}\n`;
          counts.chats++;
        }
      }
    }
    await writeText(pending, lines());
    return counts;
  });
}

/** The keys are the column names of run.sqlite. */
function common(summary: EpisodeSummary) {
  const { episode, purpose, env, layoutSeed, version, update, reward, penalty, success, stop, advantage } = summary;
  return {
    episode,
    purpose,
    env,
    layout_seed: layoutSeed,
    version,
    trained_in: update,
    reward,
    penalty,
    success,
    stop,
    advantage,
  };
}

interface Table {
  readonly name: string;
  readonly columns: Columns;
  rows(run: RecordedRun, episodes: EpisodeFilter): Iterable<Row>;
}

/** The tables of an export. Times are in UTC. */
const TABLES: readonly Table[] = [
  {
    name: "metrics",
    columns: [...named("STRING", "name", "actor"), ["step", "INT32"], ["value", "DOUBLE"], ["time", "TIMESTAMP"]],
    *rows(run) {
      for (const { atMs, ...point } of run.store.pointsAfter(0)) yield { ...point, time: atMs };
    },
  },
  {
    name: "events",
    columns: [...named("STRING", "actor", "level", "kind", "text"), ["time", "TIMESTAMP"]],
    *rows(run) {
      for (const { atMs, ...event } of run.events()) yield { ...event, time: atMs };
    },
  },
  {
    name: "episodes",
    columns: [
      ...named("STRING", "episode", "purpose", "env", "sampler", "status", "stop"),
      ...named("INT32", "attempt", "group_index", "member", "version", "trained_in", "turn_count", "written_tokens"),
      ...named("DOUBLE", "layout_seed", "dynamics_seed", "temperature", "reward", "penalty", "advantage"),
      ["success", "BOOLEAN"],
      ["time", "TIMESTAMP"],
      // `turns` is JSON: a list of {observation, reply, actions, reward, penalty, …}.
      ...named("STRING", "turns", "final_observation", "detail"),
    ],
    *rows(run, filter) {
      for (const { summary, row } of run.episodes(filter)) {
        const { dynamicsSeed, temperature } = row.ticket;
        const played = "trajectory" in row.outcome ? row.outcome : null;
        const { atMs, attempt, member, sampler, turnCount, writtenTokens, group, status } = summary;
        yield {
          ...common(summary),
          sampler,
          status,
          attempt,
          member,
          temperature,
          time: atMs,
          group_index: group,
          turn_count: turnCount,
          written_tokens: writtenTokens,
          dynamics_seed: dynamicsSeed,
          turns: JSON.stringify(played?.turns ?? []),
          final_observation: played?.finalObservation ?? null,
          detail: "detail" in row.outcome ? row.outcome.detail : null,
        };
      }
    },
  },
];

/** A folder with metrics.parquet, events.parquet and episodes.parquet. */
export const exportParquet = (options: RecordsExport) => exportTables(options, "parquet", writeParquet);

/** A folder with metrics.csv, events.csv and episodes.csv (RFC 4180, with a header line). */
export const exportCsv = (options: RecordsExport) => exportTables(options, "csv", writeCsv);

function exportTables(
  { folder, out, episodes }: RecordsExport,
  extension: string,
  write: typeof writeParquet,
): Promise<Counts> {
  return reading(folder, out, episodes, async (run, pending) => {
    mkdirSync(pending, { recursive: true });
    const counts: Record<string, number> = {};
    for (const table of TABLES) {
      counts[table.name] = 0;
      const counted = function* () {
        for (const row of table.rows(run, episodes)) {
          counts[table.name]!++;
          yield row;
        }
      };
      await write(join(pending, `${table.name}.${extension}`), table.columns, counted());
    }
    return counts;
  });
}

/** @throws {UsageError} if the run has no env named `env` */
async function reading(
  folder: string,
  out: string,
  { env }: EpisodeFilter,
  write: (run: RecordedRun, pending: string) => Counts | Promise<Counts>,
): Promise<Counts> {
  using run = new RecordedRun(folder);
  const envs = envNames(run.facts.env);
  if (env !== undefined && !envs.includes(env))
    throw new UsageError(`--env ${env}: ${folder} played no env of this name; name one of ${envs.join(", ")}`);
  let counts: Counts = {};
  await whole(out, async (pending) => {
    counts = await write(run, pending);
  });
  return counts;
}
