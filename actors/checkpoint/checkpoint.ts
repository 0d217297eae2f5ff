/**
 * A learner's state on disk: what it takes to go on as if it had never stopped.
 *
 *   FOLDER/u000120/policy.safetensors      parameters under Hugging Face's names
 *                  critic.safetensors      the same of the critic, if there is one
 *                  optimizer.safetensors   AdamW's moments, flat, in the order of the parameters in memory
 *                  state.json              model, tokenizer, optimiser steps, and what the learner adds
 *                  SHA256SUMS              of each of them, as sha256sum writes and checks it
 *
 * - A name without a dot in front is a finished checkpoint: it was written elsewhere, synced and renamed. Whatever fails, or
 *   kills the process, leaves those before it as they were.
 * - Finished checkpoints are never written to. A second one of the same update is u000120-2.
 * - Nothing of a checkpoint is used before every file of it has the digest that it was saved with.
 */
import { join } from "node:path";
import { describeError } from "../errors.ts";
import { type Disk, realDisk } from "./disk.ts";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./files.ts";
import { checkSums, Sums } from "./sums.ts";

export type { Checkpoint, SavedNetwork } from "./files.ts";

const NAME = /^u(\d{6,})(?:-(\d+))?$/;
/** Of folders that are being written or removed; a process that was killed leaves them. */
const PENDING = /^\.(writing|removing)-/;

/**
 * Save all of it, or nothing. The arrays are read until this is done, so nobody may change them before; they are not copied, and the
 * event loop goes on meanwhile.
 *
 * @returns the new checkpoint's folder.
 * @throws {CheckpointError} in one line; nothing of it is left, unless the disk refuses even that.
 */
export async function saveCheckpoint(folder: string, checkpoint: Checkpoint, disk: Disk = realDisk): Promise<string> {
  const base = `u${String(checkpoint.update).padStart(6, "0")}`;
  const files = encodeCheckpoint(checkpoint);
  const byteCount = [...files.values()].flat().reduce((sum, part) => sum + part.length, 0);
  const sums = new Sums();
  const pending = join(folder, `.writing-${base}`);
  try {
    const names = await disk.list(folder);
    const copies = names.filter((name) => name === base || name.startsWith(`${base}-`)).map(copyNumber);
    const path = join(folder, copies.length === 0 ? base : `${base}-${Math.max(...copies) + 1}`);
    await disk.remove(pending);
    await disk.makeFolder(pending);
    for (const [name, parts] of files) await disk.write(join(pending, name), sums.count(name, parts));
    const [name, list] = sums.list();
    await disk.write(join(pending, name), [list]);
    await disk.syncFolder(pending);
    await disk.rename(pending, path);
    await disk.syncFolder(folder);
    return path;
  } catch (error) {
    const left = await disk.remove(pending).then(
      () => "",
      () => `; what was written is left in ${pending}`,
    );
    throw new CheckpointError(`cannot save ${join(folder, base)}, ${byteCount} bytes: ${reason(error)}${left}`, error);
  }
}

const copyNumber = (name: string): number => Number(NAME.exec(name)?.[2] ?? 1);

/** @throws {CheckpointError} naming the file and what is wrong with it. */
export async function loadCheckpoint(path: string, disk: Disk = realDisk): Promise<Checkpoint> {
  try {
    return decodeCheckpoint(await readVerified(path, disk));
  } catch (error) {
    throw new CheckpointError(`cannot load checkpoint ${path}: ${reason(error)}`, error);
  }
}

/** Every file of a checkpoint by name. @throws {Error} naming the first that is not what was saved. */
async function readVerified(path: string, disk: Disk): Promise<ReadonlyMap<string, Uint8Array>> {
  const names = await disk.list(path);
  if (names.length === 0) throw new Error("there is nothing there");
  const files = new Map<string, Uint8Array>();
  for (const name of names.sort()) files.set(name, await disk.read(join(path, name)));
  await checkSums(files);
  return files;
}

/** A checkpoint that will not be used, and why. */
export interface Skipped {
  readonly path: string;
  readonly reason: string;
}

export interface Latest {
  /** Its folder; null if there is none. */
  readonly found: string | null;
  /** Newer ones that are not whole. */
  readonly skipped: readonly Skipped[];
}

/** The newest checkpoint whose every file is as it was saved. */
export async function latestCheckpoint(folder: string, disk: Disk = realDisk): Promise<Latest> {
  const names = await disk.list(folder);
  const skipped: Skipped[] = names
    .filter((name) => PENDING.test(name))
    .map((name) => ({ path: join(folder, name), reason: "the process ended while it was being written or removed" }));
  for (const { name } of finished(names)) {
    const path = join(folder, name);
    try {
      await readVerified(path, disk);
      return { found: path, skipped };
    } catch (error) {
      skipped.push({ path, reason: reason(error) });
    }
  }
  return { found: null, skipped };
}

/**
 * The newest checkpoint of this update, for a run that goes back to it: those of later updates are renamed, so that nobody
 * resumes from them. They are not removed.
 *
 * @throws {CheckpointError} if there is none.
 */
export async function goBackTo(folder: string, update: number, disk: Disk = realDisk): Promise<string> {
  const all = finished(await disk.list(folder));
  const target = all.find((one) => one.update === update);
  if (target === undefined)
    throw new CheckpointError(`${folder} has no checkpoint of update ${update} to go back to`, null);
  const given = Math.max(
    0,
    ...(await disk.list(folder)).map((name) => Number(/^given-up-(\d+)-/.exec(name)?.[1] ?? 0)),
  );
  for (const { name } of all.filter((one) => one.update > update)) {
    await disk.rename(join(folder, name), join(folder, `given-up-${given + 1}-${name}`));
  }
  await disk.syncFolder(folder);
  return join(folder, target.name);
}

/**
 * Remove all but the newest `keep` checkpoints and those of the updates in `spared`, and what killed processes left.
 *
 * @returns the paths removed.
 */
export async function keepCheckpoints(
  folder: string,
  keep: number,
  spared: readonly number[],
  disk: Disk = realDisk,
): Promise<string[]> {
  if (!Number.isInteger(keep) || keep < 1) throw new RangeError(`keep must be an integer of at least 1, got ${keep}`);
  const names = await disk.list(folder);
  for (const name of names.filter((name) => PENDING.test(name))) await disk.remove(join(folder, name));
  const surplus = finished(names)
    .slice(keep)
    .filter(({ update }) => !spared.includes(update));
  for (const { name } of surplus) {
    // Renamed first, so that a half-removed one never looks like a corrupt one.
    const going = join(folder, `.removing-${name}`);
    await disk.rename(join(folder, name), going);
    await disk.remove(going);
  }
  return surplus.map(({ name }) => join(folder, name));
}

/** Finished checkpoints, newest first. */
function finished(names: readonly string[]): { name: string; update: number; copy: number }[] {
  return names
    .filter((name) => NAME.test(name))
    .map((name) => ({ name, update: Number(NAME.exec(name)![1]), copy: copyNumber(name) }))
    .sort((a, b) => b.update - a.update || b.copy - a.copy);
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ((error as NodeJS.ErrnoException).code === "ENOSPC") {
    return "the disk is full; the checkpoints before it are as they were. Make room, or lower checkpoint.keep";
  }
  return error.name === "Error" ? error.message : describeError(error);
}

/** A checkpoint that cannot be saved, or must not be loaded. */
export class CheckpointError extends Error {
  override readonly name = "CheckpointError";

  constructor(message: string, cause: unknown) {
    super(message, { cause });
  }
}
