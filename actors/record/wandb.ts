/**
 * A recorded run as `wandb sync` takes it: one file of protobuf records in LevelDB's log format. Needs no account and no network to write.
 *
 * W&B numbers rows by one counter that only grows, so a row is what was told at one moment, and its own number stands in it as `update`,
 * or as `warm_step` during the warm start; charts can take these as their axis. What every actor has of its own is `NAME/ACTOR`.
 *
 * Source: wandb/proto/wandb_internal.proto (field numbers below); LevelDB's doc/log_format.md, with W&B's header of 7 bytes and plain CRC-32.
 */

import { Message } from "../../model/engine/protobuf.ts";
import { isMetricName, metric } from "../metrics/metrics.ts";
import type { StoredPoint } from "../metrics-sink/records.ts";

export interface WandbRun {
  readonly id: string;
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly startedMs: number;
  readonly seenMs: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly points: Iterable<StoredPoint>;
}

const PROJECT = "bunraku";

/** Where `wandb sync` looks for it, below the folder that it is given; it tells runs that were offline by this name. */
export function wandbPath({ id, startedMs }: Pick<WandbRun, "id" | "startedMs">): string {
  const [date, time] = new Date(startedMs)
    .toISOString()
    .replaceAll(/[-:]|\..*/g, "")
    .split("T");
  return `offline-run-${date}_${time}-${id}/run-${id}.wandb`;
}

/** The file's bytes, in pieces. */
export function* wandbFile(run: WandbRun): Generator<Uint8Array> {
  const log = new Blocks();
  // ":W&B", 0xBEE1 and version 0.
  yield log.raw(Uint8Array.of(0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0));
  let number = 0;
  // Record: num 1, and one of the fields that are named here.
  const record = (field: number, message: Message) =>
    log.record(new Message().int(1, ++number).message(field, message).finish());
  // header 21: version_info 1: producer 1.
  yield record(21, new Message().message(1, new Message().text(1, PROJECT)));
  yield record(17, runRecord(run));
  const summary = new Map<string, number>();
  let rows = 0;
  for (const { values, atMs } of rowsOf(run.points)) {
    for (const [key, value] of values) summary.set(key, value);
    // history 2: item 1, step 2: num 1.
    const history = new Message();
    const told = [...values, ["_step", rows], ["_timestamp", atMs / 1000], ["_runtime", (atMs - run.startedMs) / 1000]];
    for (const [key, value] of told as [string, number][]) history.message(1, item(2, key, value));
    yield record(2, history.message(2, new Message().int(1, rows++)));
  }
  // summary 3: update 1. exit 18: exit_code 1, runtime 2.
  const last = new Message();
  for (const [key, value] of summary) last.message(1, item(2, key, value));
  yield record(3, last);
  const seconds = Math.max(0, Math.round((run.seenMs - run.startedMs) / 1000));
  yield record(18, new Message().int(1, 0).int(2, seconds));
}

/** run: run_id 1, project 3, config 4: update 1, display_name 8, start_time 17: seconds 1, nanos 2. */
function runRecord({ id, name, startedMs, config }: WandbRun): Message {
  const settings = new Message();
  for (const [key, value] of Object.entries(config)) settings.message(1, item(1, key, value));
  const start = new Message().int(1, Math.floor(startedMs / 1000)).int(2, (startedMs % 1000) * 1e6);
  return new Message().text(1, id).text(3, PROJECT).message(4, settings).text(8, name).message(17, start);
}

/** HistoryItem, SummaryItem and ConfigItem are alike: key 1, nested_key 2, value_json 16. */
const item = (keyField: 1 | 2, key: string, value: unknown): Message =>
  new Message().text(keyField, key).text(16, JSON.stringify(value));

interface WandbRow {
  readonly atMs: number;
  readonly values: Map<string, number>;
}

/** What was written at one moment about one step. */
function* rowsOf(points: Iterable<StoredPoint>): Generator<WandbRow> {
  let row: (WandbRow & { readonly axis: string; readonly step: number }) | null = null;
  for (const { name, actor, step, value, atMs } of points) {
    const axis = name.startsWith("warm/") ? "warm_step" : "update";
    if (row === null || row.atMs !== atMs || row.step !== step || row.axis !== axis) {
      if (row !== null) yield row;
      row = { atMs, axis, step, values: new Map([[axis, step]]) };
    }
    const own = isMetricName(name) && metric(name).perActor === true;
    row.values.set(own ? `${name}/${actor}` : name, value);
  }
  if (row !== null) yield row;
}

const BLOCK_BYTES = 32_768;
const HEAD_BYTES = 7;
const [FULL, FIRST, MIDDLE, LAST] = [1, 2, 3, 4] as const;

/** LevelDB's log: records in blocks, cut where a block ends. */
class Blocks {
  #at = 0;

  raw(bytes: Uint8Array): Uint8Array {
    this.#at += bytes.length;
    return bytes;
  }

  record(data: Uint8Array): Uint8Array {
    const pieces: Uint8Array[] = [];
    for (let from = 0, begun = false; !begun || from < data.length; begun = true) {
      let room = BLOCK_BYTES - (this.#at % BLOCK_BYTES);
      if (room < HEAD_BYTES) {
        pieces.push(this.raw(new Uint8Array(room)));
        room = BLOCK_BYTES;
      }
      const part = data.subarray(from, from + room - HEAD_BYTES);
      from += part.length;
      const ends = from === data.length;
      const type = begun ? (ends ? LAST : MIDDLE) : ends ? FULL : FIRST;
      pieces.push(this.raw(fragment(type, part)));
    }
    return Buffer.concat(pieces);
  }
}

/** Checksum of type and data, length, type, data. */
function fragment(type: number, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEAD_BYTES + data.length);
  const view = new DataView(bytes.buffer);
  bytes[6] = type;
  bytes.set(data, HEAD_BYTES);
  view.setUint32(0, Bun.hash.crc32(bytes.subarray(6)), true);
  view.setUint16(4, data.length, true);
  return bytes;
}
