/**
 * What a run has recorded, in the files of other tools. Metrics for TensorBoard and W&B; metrics, events and episodes as tables;
 * episodes as chats. Each is whole or not there.
 */
import { closeSync, fsyncSync, mkdirSync, openSync, writeSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { type BasicType, fileWriter, parquetWriteRows } from "hyparquet-writer";
import type { EpisodeSummary } from "../../actors/dashboard/answers.ts";
import type { EpisodeFilter } from "../../actors/metrics-sink/records.ts";
import { episodeRules, tagOf } from "../../actors/play/envs-of-run.ts";
import { whole } from "../../actors/policy/export.ts";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import { chatsOf } from "../../actors/record/chat-lines.ts";
import { EventFiles } from "../../actors/record/event-files.ts";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import { wandbFile, wandbPath } from "../../actors/record/wandb.ts";

export interface RecordsExport {
  readonly folder: string;
  readonly out: string;
  /** Which episodes, for formats that hold them. */
  readonly episodes: EpisodeFilter;
}

/** Rows written, by kind. */
export type Counts = Readonly<Record<string, number>>;

/** Event files: the run's metrics in `out`, those that every actor has of its own in `out/ACTOR`. */
export function exportTensorboard({ folder, out }: RecordsExport): Promise<Counts> {
  return reading(folder, out, (run, pending) => {
    const events = new EventFiles(pending, run.facts.startedMs);
    for (const point of run.points()) events.add(point);
    events.flush();
    return { points: events.points, files: events.files };
  });
}

/** A folder with one run in it, for `wandb sync`. */
export function exportWandb({ folder, out }: RecordsExport): Promise<Counts> {
  const config = { ...readRunConfig(folder) };
  const id = basename(resolve(folder)).replaceAll(/[^\w-]/g, "-");
  return reading(folder, out, (run, pending) => {
    const { name, startedMs, seenMs } = run.facts;
    const file = new Output(join(pending, wandbPath({ id, startedMs })));
    let points = 0;
    const counted = function* () {
      for (const point of run.points()) {
        points++;
        yield point;
      }
    };
    for (const piece of wandbFile({ id, name, startedMs, seenMs, config, points: counted() })) file.write(piece);
    file.close();
    return { points };
  });
}

/** One chat a line: `{"messages": [{role, content} …], env, reward, success, …}`. */
export function exportChats({ folder, out, episodes }: RecordsExport): Promise<Counts> {
  const config = readRunConfig(folder);
  const envs = new Map<string, { tag: ReturnType<typeof tagOf>; actionsMax: number }>();
  const envOf = (name: string) => {
    const tag = envs.get(name)?.tag ?? tagOf(config, name);
    const env = envs.get(name) ?? { tag, actionsMax: episodeRules(config, name, tag).actionsMax };
    envs.set(name, env);
    return env;
  };
  return reading(folder, out, (run, pending) => {
    const file = new Output(pending);
    const counts = { episodes: 0, chats: 0 };
    for (const { summary, row } of run.episodes({ ...episodes, failed: false })) {
      if (!("trajectory" in row.outcome)) continue;
      const { tag, actionsMax } = envOf(summary.env);
      counts.episodes++;
      for (const messages of chatsOf(row.outcome, tag, config, actionsMax)) {
        file.write(`${JSON.stringify({ messages, ...common(summary) })}\n`);
        counts.chats++;
      }
    }
    file.close();
    return counts;
  });
}

/** Named as the columns of run.sqlite, most of which need no quotes in SQL. */
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

type Row = Readonly<Record<string, string | number | boolean | null>>;

interface Table {
  readonly name: string;
  readonly columns: readonly (readonly [name: string, type: BasicType])[];
  rows(run: RecordedRun, episodes: EpisodeFilter): Iterable<Row>;
}

/** What happened, at which moment, in UTC. */
const TABLES: readonly Table[] = [
  {
    name: "metrics",
    columns: [
      ["name", "STRING"],
      ["actor", "STRING"],
      ["step", "INT32"],
      ["value", "DOUBLE"],
      ["time", "TIMESTAMP"],
    ],
    *rows(run) {
      for (const { atMs, ...point } of run.points()) yield { ...point, time: atMs };
    },
  },
  {
    name: "events",
    columns: [
      ["actor", "STRING"],
      ["level", "STRING"],
      ["kind", "STRING"],
      ["text", "STRING"],
      ["time", "TIMESTAMP"],
    ],
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
      // JSON: a list of {observation, reply, actions, reward, penalty, …}.
      ["turns", "STRING"],
      ["final_observation", "STRING"],
      ["detail", "STRING"],
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

function named(type: BasicType, ...names: string[]): (readonly [string, BasicType])[] {
  return names.map((name) => [name, type] as const);
}

/** Rows of a row group: as many are in memory at once. */
const ROW_GROUP = 2000;

/** A folder with metrics.parquet, events.parquet and episodes.parquet. */
export function exportParquet({ folder, out, episodes }: RecordsExport): Promise<Counts> {
  return reading(folder, out, async (run, pending) => {
    mkdirSync(pending, { recursive: true });
    const counts: Record<string, number> = {};
    for (const { name, columns, rows } of TABLES) {
      counts[name] = 0;
      const typed = function* () {
        for (const row of rows(run, episodes)) {
          counts[name]!++;
          yield Object.fromEntries(
            columns.map(([column, type]) => {
              const cell = row[column]!;
              return [column, type === "TIMESTAMP" ? new Date(cell as number) : cell];
            }),
          );
        }
      };
      await parquetWriteRows({
        writer: fileWriter(join(pending, `${name}.parquet`)),
        rows: typed(),
        columns: columns.map(([column, type]) => ({ name: column, type, nullable: true })),
        rowGroupSize: ROW_GROUP,
      });
    }
    return counts;
  });
}

/** A folder with metrics.csv, events.csv and episodes.csv: RFC 4180, a line of names first. */
export function exportCsv({ folder, out, episodes }: RecordsExport): Promise<Counts> {
  return reading(folder, out, (run, pending) => {
    const counts: Record<string, number> = {};
    for (const { name, columns, rows } of TABLES) {
      counts[name] = 0;
      const file = new Output(join(pending, `${name}.csv`));
      file.write(csvLine(columns.map(([column]) => column)));
      for (const row of rows(run, episodes)) {
        file.write(
          csvLine(
            columns.map(([column, type]) => {
              const cell = row[column]!;
              return type === "TIMESTAMP" ? new Date(cell as number).toISOString() : cell;
            }),
          ),
        );
        counts[name]!++;
      }
      file.close();
    }
    return counts;
  });
}

/** Null is an empty field, an empty text a quoted one. */
function csvLine(cells: readonly Row[string][]): string {
  const fields = cells.map((cell) => {
    if (cell === null) return "";
    if (typeof cell !== "string") return String(cell);
    return cell === "" || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  });
  return `${fields.join(",")}\r\n`;
}

async function reading(
  folder: string,
  out: string,
  write: (run: RecordedRun, pending: string) => Counts | Promise<Counts>,
): Promise<Counts> {
  const run = new RecordedRun(folder);
  let counts: Counts = {};
  try {
    await whole(out, async (pending) => {
      counts = await write(run, pending);
    });
  } finally {
    run.close();
  }
  return counts;
}

const BUFFER_BYTES = 1 << 20;

/** A new file, written in large pieces and put on the disk when it is closed. */
class Output {
  readonly #file: number;
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  #used = 0;

  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true });
    this.#file = openSync(path, "wx");
  }

  write(piece: string | Uint8Array): void {
    const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
    if (this.#used + bytes.length > BUFFER_BYTES) this.#flush();
    if (bytes.length > BUFFER_BYTES) {
      this.#put(bytes);
      return;
    }
    this.#buffer.set(bytes, this.#used);
    this.#used += bytes.length;
  }

  close(): void {
    this.#flush();
    fsyncSync(this.#file);
    closeSync(this.#file);
  }

  #flush(): void {
    this.#put(this.#buffer.subarray(0, this.#used));
    this.#used = 0;
  }

  #put(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
  }
}
