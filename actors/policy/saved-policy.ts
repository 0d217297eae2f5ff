/**
 * A run's saved policy. This file reads the policy from a checkpoint, checks the policy against the run's config, and loads it with the
 * samplers' code. This file uses no env. The run may still be training.
 *
 * - If the checkpoint has another network shape or tokenizer than the config, this file throws before the network computes anything.
 */
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { z } from "zod";
import { faultsOf } from "../../model/checkpoint/config.ts";
import { differingKey } from "../../model/policy/model-config.ts";
import { latestCheckpoint, loadCheckpoint, type Skipped, weightsElsewhere } from "../checkpoint/checkpoint.ts";
import { RunConfig, UNCOMPILED } from "../config/config.ts";
import { upgraded } from "../config/former-keys.ts";
import type { Tree } from "../config/layers.ts";
import { samplerEngine, thisMachine } from "../engine/choice.ts";
import { describeError } from "../errors.ts";
import { type Remote, startThread } from "../process/worker-rpc.ts";
import { runsWithin } from "../record/recorded-run.ts";
import type { PolicyMethods } from "../sampler/policy.ts";
import type { Progress } from "../training/progress.ts";
import { batchName } from "../training/tickets-to-play.ts";
import { weightsFolder } from "../weights/files.ts";
import { roundToHalf } from "../weights/half.ts";
import { WeightsPublisher } from "../weights/publisher.ts";
import type { Exportable } from "./export.ts";
import { policyOf } from "./pretrained.ts";

/** The config of a recorded run. @throws {Error} in one line, if the config cannot be read. */
export function readRunConfig(folder: string): RunConfig {
  const file = join(folder, "config.json");
  if (!existsSync(file)) throw new Error(`no run in ${folder}: there is no config.json${runsWithin(folder)}`);
  let read: unknown;
  try {
    read = JSON.parse(readFileSync(file, "utf8"));
    return RunConfig.parse(upgraded(read as Tree), UNCOMPILED);
  } catch (error) {
    if (read !== null && typeof read === "object" && "model_type" in read)
      throw new Error(`${folder} has a Hugging Face model, not a run; make a run: bun run cluster --model ${folder}`);
    const why = error instanceof z.ZodError ? faultsOf(error) : describeError(error);
    throw new Error(`cannot use the config of ${folder}, ${file}: ${why}`);
  }
}

export interface SavedPolicy extends Pick<Exportable, "model" | "dialogue" | "parameters"> {
  /** Folder of the policy's checkpoint. */
  readonly path: string;
  /** Number of updates before the checkpoint. */
  readonly update: number;
  /** The version number with which the run published these weights. */
  readonly publishedVersion: number;
  /** Name of the validation in which the run itself tested this policy. */
  readonly validation: string;
  /** Damaged checkpoints that are newer than this one; empty if the caller named the checkpoint. */
  readonly skipped: readonly Skipped[];
}

/**
 * @param checkpoint  the checkpoint's name, such as u000120; null for the newest undamaged checkpoint
 * @throws {Error} in one line, if there is no such checkpoint, or if the checkpoint is damaged or of another run.
 */
export async function savedPolicy(folder: string, config: RunConfig, checkpoint: string | null): Promise<SavedPolicy> {
  const checkpoints = join(folder, "checkpoints");
  const { found, skipped } =
    checkpoint === null
      ? await latestCheckpoint(checkpoints)
      : { found: join(checkpoints, checkpoint), skipped: [] as const };
  if (found === null) {
    const [newest] = skipped;
    if (newest !== undefined)
      throw new Error(`no checkpoint of ${folder} can be used; ${newest.path}: ${newest.reason}`);
    throw new Error(`${folder} has no checkpoint yet; a run saves the first one after its first validation`);
  }
  const { update, state, model: saved, tokenizer: digest, policy, served = null } = await loadCheckpoint(found);
  if (served !== null) throw new Error(`cannot use ${found}: ${weightsElsewhere(served)}`);
  const { model, dialogue } = policyOf(config);
  const key = differingKey(saved, model);
  if (key !== undefined) {
    const values = `model.${key} ${JSON.stringify(saved[key])}, and the config of ${folder} says`;
    throw new Error(
      `cannot use ${found}: it has ${values} ${JSON.stringify(model[key])}; the checkpoint is of another run`,
    );
  }
  if (digest !== dialogue.digest) {
    throw new Error(
      `cannot use ${found}: its tokenizer differs from the run's; use the version of Bunraku that made the checkpoint`,
    );
  }
  // Checkpoints of an early Bunraku, which had no roll-backs, have no round.
  const { version: publishedVersion = update, health } = state as Partial<Progress>;
  const round = health?.control.round ?? 0;
  return {
    path: found,
    update,
    publishedVersion,
    validation: batchName("v", update, round),
    model,
    dialogue,
    parameters: policy.parameters,
    skipped,
  };
}

/** sha256 (hex) of the weights that this run's samplers load: rounded to half precision if the config says so. */
export function publishedDigest({ parameters }: SavedPolicy, config: RunConfig): string {
  const published = config.sampler.precision === "half" ? roundToHalf(parameters) : parameters;
  return new Bun.CryptoHasher("sha256").update(published).digest("hex");
}

/** Loads a saved policy. @returns the name of the validation, and the version (the policy's update) and digest for the policy's trajectories */
export async function startSavedPolicy(
  { path, update, validation, model, parameters }: SavedPolicy,
  config: RunConfig,
  slots: number,
  policy: Remote<PolicyMethods>,
  notice: (text: string) => void,
): Promise<{ version: number; digest: string; validation: string }> {
  const half = config.sampler.precision === "half";
  await policy.start({
    base: config.model.path,
    model,
    engine: samplerEngine(config, thisMachine),
    slots,
    capacity: config.rollout.contextTokensMax,
    halfCaches: half,
    token: "",
    guest: null,
  });
  const folder = weightsFolder(tmpdir(), notice);
  const publisher = new WeightsPublisher({
    folder,
    spareFolder: tmpdir(),
    // The random part is for a process that loads two policies at once, from checkpoints with the same name.
    run: `eval-${basename(path)}-${crypto.randomUUID()}`,
    half,
    notice,
  });
  try {
    return { version: update, validation, digest: await policy.load(await publisher.publish(update, parameters)) };
  } finally {
    // The policy has mapped the file, and a mapping stays valid after the file is deleted.
    publisher.close();
  }
}

/** A saved policy, loaded in a thread of its own. */
export type PolicyThread = Awaited<ReturnType<typeof startPolicyThread>>;

/** @param notice  takes problems that do not prevent the policy's use */
export async function startPolicyThread(
  saved: SavedPolicy,
  config: RunConfig,
  slots: number,
  notice: (text: string) => void,
) {
  /** Rejects when the thread dies. Then every unanswered call to the thread rejects too. */
  const { promise: died, reject } = Promise.withResolvers<never>();
  died.catch(() => {});
  const { methods, stop } = startThread<PolicyMethods>(new URL("../sampler/policy-worker.ts", import.meta.url), reject);
  try {
    return { methods, died, stop, weights: await startSavedPolicy(saved, config, slots, methods, notice) };
  } catch (error) {
    stop();
    throw error;
  }
}
