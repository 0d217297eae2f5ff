/**
 * The tables of `run.sqlite` and the statements over them.
 *
 * - A list of migrations makes the tables: entry i takes a file from version i to i + 1 (`PRAGMA user_version`). Never edit a released
 *   entry; append a new one.
 * - Blobs are little-endian, like every machine that Bun runs on.
 */
import type { Database } from "bun:sqlite";

const MIGRATIONS: readonly string[] = [
  `
  -- One row for each start and each resume of the run. While the run writes, seen_ms grows.
  CREATE TABLE runs (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, env TEXT NOT NULL, updates INTEGER, seed INTEGER NOT NULL,
    started_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL
  );
  -- A replaced value gets a new, larger id, so that readers who ask for "what is new since id" see it.
  CREATE TABLE metrics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, actor TEXT NOT NULL, step INTEGER NOT NULL,
    value REAL NOT NULL, at_ms INTEGER NOT NULL, UNIQUE (name, actor, step)
  );
  CREATE TABLE latest (
    name TEXT NOT NULL, actor TEXT NOT NULL, step INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY (name, actor)
  ) WITHOUT ROWID;
  CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, actor TEXT NOT NULL, level TEXT NOT NULL,
    kind TEXT NOT NULL, text TEXT NOT NULL
  );
  CREATE INDEX events_by_kind ON events (kind, id);
  -- This table has the small columns and bodies the large columns, so that lists and filters read little.
  CREATE TABLE episodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, episode TEXT NOT NULL, attempt INTEGER NOT NULL, purpose TEXT NOT NULL,
    group_index INTEGER NOT NULL, member INTEGER NOT NULL, env TEXT NOT NULL, layout_seed INTEGER NOT NULL,
    dynamics_seed INTEGER NOT NULL, temperature REAL NOT NULL, top_p REAL NOT NULL, top_k INTEGER NOT NULL,
    asked_version INTEGER NOT NULL, exact INTEGER NOT NULL, sampler TEXT NOT NULL, status TEXT NOT NULL, stop TEXT,
    success INTEGER, version INTEGER, digest TEXT, reward REAL, penalty REAL, turn_count INTEGER NOT NULL,
    written_tokens INTEGER NOT NULL, trained_in INTEGER, advantage REAL, at_ms INTEGER NOT NULL,
    UNIQUE (episode, attempt)
  );
  CREATE TABLE bodies (
    id INTEGER PRIMARY KEY REFERENCES episodes (id), turns TEXT NOT NULL, spans TEXT NOT NULL,
    final_observation TEXT NOT NULL, extra TEXT NOT NULL, detail TEXT NOT NULL,
    tokens BLOB NOT NULL, written BLOB NOT NULL, log_probs BLOB NOT NULL
  );
  `,
  `
  -- The index in tokens at which each context begins. In rows of schema 1 the whole episode is one context.
  ALTER TABLE bodies ADD COLUMN contexts TEXT NOT NULL DEFAULT '[0]';
  `,
  `
  -- The latest report of each actor, as a JSON object.
  CREATE TABLE actors (name TEXT PRIMARY KEY, view TEXT NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX episodes_by_board ON episodes (layout_seed, env);
  -- Index of the words of replies and failures, for the filter by text. It holds no copy of the texts. Its rowid is the id in episodes.
  CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = 'unicode61');
  INSERT INTO words (rowid, text) SELECT id, detail || ' ' ||
    coalesce((SELECT group_concat(json_extract(value, '$.reply'), ' ') FROM json_each(turns)), '') FROM bodies;
  `,
  `
  -- The advantage of each written token, if the advantages differ within the episode; null otherwise.
  ALTER TABLE bodies ADD COLUMN token_advantages BLOB;
  `,
  `
  -- Digest of the env's module; null for a built-in env.
  ALTER TABLE bodies ADD COLUMN env_digest TEXT;
  `,
  `
  -- The ticket's limit on actions per turn; null if the config's limit applies.
  ALTER TABLE episodes ADD COLUMN actions_per_turn INTEGER;
  `,
];

/** The oldest schema version that the page can read. Later versions only added columns that the page can do without. */
export const READABLE_SCHEMA = 4;

/** The schema version of the file. @throws {Error} if the version is newer than the last migration */
export function schemaOf(db: Database): number {
  const { user_version: version } = db.query("PRAGMA user_version").get() as { user_version: number };
  if (version <= MIGRATIONS.length) return version;
  throw new Error(
    `it has schema ${version}, and this version of Bunraku reads up to ${MIGRATIONS.length}. ` +
      "Use the version that wrote it, or a newer one.",
  );
}

export function migrate(db: Database): void {
  const version = schemaOf(db);
  // Returns here, because a PRAGMA that sets the same version again would still write to the file.
  if (version === MIGRATIONS.length) return;
  db.transaction(() => {
    for (const sql of MIGRATIONS.slice(version)) db.run(sql);
    db.run(`PRAGMA user_version = ${MIGRATIONS.length}`);
  })();
}

/** The statement that inserts a row. The parameters have the names of the columns. */
export function insertInto(table: string, row: object, verb: string): string {
  const columns = Object.keys(row);
  return `${verb} INTO ${table} (${columns.join(", ")}) VALUES (${columns.map((name) => `$${name}`).join(", ")})`;
}

/** An episode in a list, with the names of `EpisodeSummary`. It has columns of schema version 1 only: an old read-only file lacks later ones. */
const SUMMARY = `SELECT id, episode, attempt, purpose, env, layout_seed AS layoutSeed, group_index AS "group", member, sampler,
  status, stop, success, version, reward, penalty, turn_count AS turnCount, written_tokens AS writtenTokens,
  trained_in AS "update", advantage, at_ms AS atMs FROM episodes`;
const EVENT_COLUMNS = "id, at_ms AS atMs, actor, level, kind, text";

export const DELETES = {
  episode: "DELETE FROM episodes WHERE id = $id",
  body: "DELETE FROM bodies WHERE id = $id",
  // The index keeps no copy of the text, so this statement names the words to remove.
  words: "INSERT INTO words (words, rowid, text) VALUES ('delete', $rowid, $text)",
} as const;

export const SELECTS = {
  run: `SELECT name, env, updates, seed, started_ms AS startedMs, seen_ms AS seenMs,
    (SELECT coalesce(sum(seen_ms - started_ms), 0) FROM runs AS other WHERE other.id < runs.id) AS earlierMs
    FROM runs ORDER BY id DESC LIMIT 1`,
  cursor: `SELECT (SELECT coalesce(max(id), 0) FROM metrics) AS points, (SELECT coalesce(max(id), 0) FROM events) AS events,
    (SELECT coalesce(max(id), 0) FROM episodes) AS episodes`,
  series: "SELECT actor, step, value FROM metrics WHERE name = $name AND id > $since ORDER BY actor, step",
  points: "SELECT id, name, actor, step, value, at_ms AS atMs FROM metrics WHERE id > $since ORDER BY id LIMIT $limit",
  latest: "SELECT name, actor, step, value FROM latest ORDER BY name, actor",
  newest: `SELECT step FROM metrics
    WHERE id = (SELECT max(id) FROM metrics WHERE name IN (SELECT value FROM json_each($names)))`,
  events: `SELECT ${EVENT_COLUMNS} FROM events WHERE id < $before AND id > $since
    AND ($kind IS NULL OR kind = $kind) AND level IN (SELECT value FROM json_each($levels)) ORDER BY id DESC LIMIT $limit`,
  lastEvent: `SELECT ${EVENT_COLUMNS} FROM events WHERE kind = $kind ORDER BY id DESC LIMIT 1`,
  actors: "SELECT view, at_ms AS atMs FROM actors ORDER BY name",
  episode: "SELECT * FROM episodes JOIN bodies USING (id) WHERE id = $id",
  attempts: "SELECT * FROM episodes JOIN bodies USING (id) WHERE episode = $episode",
  // The newest attempt that the policy played to its end; if there is no such attempt, the newest attempt.
  named: "SELECT id FROM episodes WHERE episode = $episode ORDER BY stop IS NULL, id DESC LIMIT 1",
  versionsSharing: `SELECT DISTINCT version, digest FROM episodes
    WHERE id != $id AND (version = $version OR digest = $digest) ORDER BY version, digest`,
  summary: `${SUMMARY} WHERE id = $id`,
  episodes: `${SUMMARY} WHERE id < $before AND id > $since
    AND ($env IS NULL OR env = $env) AND ($purpose IS NULL OR purpose = $purpose)
    AND ($status IS NULL OR status = $status) AND ($stop IS NULL OR stop = $stop)
    AND ($success IS NULL OR success = $success) AND ($failed IS NULL OR (stop IS NULL) = $failed) AND ($version IS NULL OR version = $version)
    AND ($update IS NULL OR trained_in = $update) AND ($layoutSeed IS NULL OR layout_seed = $layoutSeed)
    AND ($text IS NULL OR id IN (SELECT rowid FROM words WHERE words MATCH $text))
    AND ($rewardMin IS NULL OR reward >= $rewardMin) AND ($rewardMax IS NULL OR reward <= $rewardMax)
    ORDER BY id DESC LIMIT $limit`,
} as const;
