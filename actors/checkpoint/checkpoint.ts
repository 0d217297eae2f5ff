/**
 * Checkpoints: the files from which a learner continues as if it had never stopped.
 *
 *   FOLDER/u000120/policy.safetensors      parameters under Hugging Face's names
 *                  critic.safetensors      the critic's parameters, if the run has a critic
 *                  optimizer.safetensors   the optimizer's moments, as flat arrays in the order of the parameters in memory; if the moments
 *                                          take more than 4 GiB, one file for each moment: optimizer.policy.moment.safetensors, …
 *                  state.json              model, tokenizer, optimizer steps, and the learner's own state
 *                  SHA256SUMS              digests of all files above, in the format of sha256sum
 *
 * - A checkpoint whose name has no leading dot is complete: `saveCheckpoint` writes the folder under a name with a dot, syncs the folder
 *   and renames it. An error or the death of the process does not change earlier checkpoints.
 * - The files of a complete checkpoint never change. A second checkpoint of the same update has the name u000120-2.
 * - The code checks all digests of a checkpoint before it uses any of the files.
 */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { nextTurn } from "../clock.ts";
import { describeError } from "../errors.ts";
import { type Disk, realDisk } from "./disk.ts";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./files.ts";

export type { Checkpoint, NetworkMemory } from "./files.ts";

/** Says why a checkpoint without weights cannot be used. @param served  as in `Checkpoint` */
export const weightsElsewhere = (served: string): string =>
  `its weights are at the server of engine tinker, as ${served}; export them there`;

const NAME = /^u(\d{6,})(?:-(\d+))?$/;
/** Names of folders that a process writes or removes now, or that a killed process left. */
const PENDING = /^\.(writing|removing)-/;

/**
 * Saves the whole checkpoint, or nothing. Does not copy the arrays, so the caller must not change them until the promise resolves.
 *
 * @returns the new checkpoint's folder
 * @throws {CheckpointError} if a write fails. Then no file of this checkpoint is left, unless the disk also refuses to remove the files
 */
export async function saveCheckpoint(folder: string, checkpoint: Checkpoint, disk: Disk = realDisk): Promise<string> {
  const base = `u${String(checkpoint.update).padStart(6, "0")}`;
  const files = encodeCheckpoint(checkpoint);
  const byteCount = [...files.values()].flat().reduce((sum, part) => sum + part.length, 0);
  /** The lines of `SUMS`. */
  const sums: string[] = [];
  const pending = join(folder, `.writing-${base}`);
  try {
    const names = await disk.list(folder);
    const copies = names.filter((name) => name === base || name.startsWith(`${base}-`)).map(copyNumber);
    const path = join(folder, copies.length === 0 ? base : `${base}-${Math.max(...copies) + 1}`);
    await disk.remove(pending);
    await disk.makeFolder(pending);
    for (const [name, parts] of files) await disk.write(join(pending, name), summed(name, parts, sums));
    await disk.write(join(pending, SUMS), [new TextEncoder().encode(sums.join(""))]);
    await disk.syncFolder(pending);
    await disk.rename(pending, path);
    await disk.syncFolder(folder);
    return path;
  } catch (error) {
    const left = await disk.remove(pending).then(
      () => "",
      () => `; ${pending} could not be removed`,
    );
    throw new CheckpointError(`cannot save ${join(folder, base)}, ${byteCount} bytes: ${reason(error)}${left}`, {
      cause: error,
    });
  }
}

const copyNumber = (name: string): number => Number(NAME.exec(name)?.[2] ?? 1);

/** @throws {CheckpointError} naming the file that is wrong */
export async function loadCheckpoint(path: string, disk: Disk = realDisk): Promise<Checkpoint> {
  try {
    return decodeCheckpoint(await readVerified(path, disk));
  } catch (error) {
    throw new CheckpointError(`cannot load checkpoint ${path}: ${reason(error)}`, { cause: error });
  }
}

/** All files of a checkpoint, by name. @throws {Error} naming the first file that is missing or whose bytes have changed */
async function readVerified(path: string, disk: Disk): Promise<ReadonlyMap<string, Uint8Array>> {
  const names = await disk.list(path);
  if (names.length === 0) throw new Error("the folder is empty or missing");
  const files = new Map<string, Uint8Array>();
  for (const name of names.sort()) files.set(name, await disk.read(join(path, name)));
  await checkSums(files);
  return files;
}

/** A folder that cannot be used as a checkpoint. */
export interface Skipped {
  readonly path: string;
  readonly reason: string;
}

export interface Latest {
  /** Folder of the newest intact checkpoint; null if there is none. */
  readonly found: string | null;
  /** Checkpoints that are newer than `found` but not intact, and folders that a killed process left. */
  readonly skipped: readonly Skipped[];
}

/** Finds the newest checkpoint whose files are all intact. */
export async function latestCheckpoint(folder: string, disk: Disk = realDisk): Promise<Latest> {
  const names = await disk.list(folder);
  const skipped: Skipped[] = names
    .filter((name) => PENDING.test(name))
    .map((name) => ({ path: join(folder, name), reason: "the process ended while it wrote or removed this folder" }));
  for (const { name } of newestFirst(names)) {
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
 * Finds the newest checkpoint of `update`, to which a run rolls back. Renames the checkpoints of later updates, so that no run resumes from
 * them.
 *
 * @throws {CheckpointError} if the newest checkpoint of `update` is missing or damaged (then nothing is renamed), or if a later checkpoint
 * cannot be renamed
 */
export async function rollBackTo(folder: string, update: number, disk: Disk = realDisk): Promise<string> {
  const names = await disk.list(folder);
  const all = newestFirst(names);
  const target = all.find((one) => one.update === update);
  if (target === undefined) throw new CheckpointError(`${folder} has no checkpoint of update ${update} to go back to`);
  const path = join(folder, target.name);
  try {
    await readVerified(path, disk);
  } catch (error) {
    throw new CheckpointError(`cannot go back to ${path}: ${reason(error)}`, { cause: error });
  }
  const rounds = names.map((name) => Number(/^given-up-(\d+)-/.exec(name)?.[1] ?? 0));
  const round = Math.max(0, ...rounds) + 1;
  try {
    for (const { name } of all.filter((one) => one.update > update)) {
      await disk.rename(join(folder, name), join(folder, `given-up-${round}-${name}`));
    }
    await disk.syncFolder(folder);
  } catch (error) {
    throw new CheckpointError(`cannot set aside the checkpoints after ${path}: ${reason(error)}`, { cause: error });
  }
  return path;
}

/**
 * Removes folders that killed processes left. Also removes all checkpoints except the newest `keep` and those of the updates in `spared`.
 *
 * @returns paths of the removed checkpoints
 */
export async function keepCheckpoints(
  folder: string,
  keep: number,
  spared: readonly number[],
  disk: Disk = realDisk,
): Promise<string[]> {
  const names = await disk.list(folder);
  for (const name of names.filter((name) => PENDING.test(name))) await disk.remove(join(folder, name));
  const surplus = newestFirst(names)
    .slice(keep)
    .filter(({ update }) => !spared.includes(update));
  for (const { name } of surplus) {
    // Rename first: a kill during the removal then leaves a pending folder, and no checkpoint that looks corrupt.
    const going = join(folder, `.removing-${name}`);
    await disk.rename(join(folder, name), going);
    await disk.remove(going);
  }
  return surplus.map(({ name }) => join(folder, name));
}

/** The names of the folder's complete checkpoints, newest first; empty if there is no folder. This function checks no digest. */
export const checkpointsIn = (folder: string) => newestFirst(existsSync(folder) ? readdirSync(folder) : []);

function newestFirst(names: readonly string[]): { name: string; update: number; copy: number }[] {
  return names
    .filter((name) => NAME.test(name))
    .map((name) => ({ name, update: Number(NAME.exec(name)![1]), copy: copyNumber(name) }))
    .sort((a, b) => b.update - a.update || b.copy - a.copy);
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ((error as NodeJS.ErrnoException).code === "ENOSPC") {
    return "the disk is full; earlier checkpoints are intact. Free disk space, or lower checkpoint.keep";
  }
  return error.name === "Error" ? error.message : describeError(error);
}

export class CheckpointError extends Error {
  override readonly name = "CheckpointError";
}

const SUMS = "SHA256SUMS";
const LINE = /^([0-9a-f]{64}) {2}([^/\n]+)$/;

/** Number of bytes to hash at a time. Hashing them takes about 10 ms. After each piece the event loop can do other work. */
const PIECE_BYTES = 2 ** 24;

function* piecesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

/** Yields a file's parts in small pieces and hashes each piece. After the last piece, adds the file's digest to `sums`. */
function* summed(name: string, parts: Iterable<Uint8Array>, sums: string[]): Generator<Uint8Array> {
  const hasher = new Bun.CryptoHasher("sha256");
  for (const part of parts) {
    for (const piece of piecesOf(part)) {
      hasher.update(piece);
      yield piece;
    }
  }
  sums.push(`${hasher.digest("hex")}  ${name}\n`);
}

async function digestOf(bytes: Uint8Array): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  for (const piece of piecesOf(bytes)) {
    hasher.update(piece);
    if (piece.length === PIECE_BYTES) await nextTurn();
  }
  return hasher.digest("hex");
}

/** @throws {Error} naming the first file that is missing, changed, or not in the list */
async function checkSums(files: ReadonlyMap<string, Uint8Array>): Promise<void> {
  const list = files.get(SUMS);
  if (list === undefined) throw new Error(`${SUMS} is missing`);
  const text = new TextDecoder().decode(list);
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new Error(`${SUMS} was cut`);
  const known = new Set([SUMS]);
  for (const line of lines) {
    const [, digest, name] = LINE.exec(line) ?? [];
    if (digest === undefined || name === undefined)
      throw new Error(`${SUMS} is corrupt: ${JSON.stringify(line.slice(0, 100))}`);
    const bytes = files.get(name);
    if (bytes === undefined) throw new Error(`${name} is missing`);
    const found = await digestOf(bytes);
    if (found !== digest) {
      throw new Error(`${name} is corrupt: its ${bytes.length} bytes have sha256 ${found}, and ${digest} was saved`);
    }
    known.add(name);
  }
  for (const name of files.keys()) if (!known.has(name)) throw new Error(`${name} is not in ${SUMS}`);
}
