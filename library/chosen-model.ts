/** Finds or downloads the pretrained model of a run, and checks everything that it can check without reading the weights. */
import { homedir } from "node:os";
import { resolve } from "node:path";
import type { RunConfig } from "../actors/config/config.ts";
import { learnerEngine, type Machine, thisMachine } from "../actors/engine/choice.ts";
import { ConfigError, messageOf } from "../actors/errors.ts";
import { envsText, envsWithRules } from "../actors/play/envs-of-run.ts";
import { type Hub, hubCache, hubModel, isHubName, parseHubName } from "../actors/policy/hub.ts";
import { checkPretrained, policyOf } from "../actors/policy/pretrained.ts";
import { isEncrypted } from "../actors/transport/address.ts";
import { serverTls } from "../actors/transport/tls.ts";
import type { EnvTag } from "../envs/tag.ts";
import { baseOf } from "../model/policy/model-config.ts";

/**
 * Returns the config with the absolute path of the model's folder, because a resumed run may start in another working directory.
 *
 * @throws {CheckpointFormatError} in one line, if this code does not support the model, or if `model.lora.targets` names a matrix that cannot
 * have an adapter
 * @param notice  called with each line on the progress of a download
 */
export async function withModel(config: RunConfig, notice: (line: string) => void): Promise<RunConfig> {
  const { path } = config.model;
  if (path === null) return config;
  // With engine tinker, the server has the weights.
  const needs = config.engine.name === "tinker" ? "tokenizer" : "weights";
  const folder = await find(path, notice, needs);
  const chosen = { ...config, model: { ...config.model, path: folder } };
  const { model } = policyOf(chosen);
  if (needs === "weights") await checkPretrained(folder, baseOf(model));
  return chosen;
}

/** The checked folder of a model. @param model  a folder, or hf:OWNER/NAME[@REVISION] */
export async function modelFolder(model: string, notice: (line: string) => void): Promise<string> {
  const folder = await find(model, notice, "weights");
  await checkPretrained(folder);
  return folder;
}

/** `weights`: all files of the model. `tokenizer`: all files except the weights. */
type Needs = "weights" | "tokenizer";

async function find(model: string, notice: (line: string) => void, needs: Needs): Promise<string> {
  if (!isHubName(model)) return resolve(model);
  const { HF_ENDPOINT, HF_TOKEN } = process.env;
  let lastLine = "";
  const hub: Hub = {
    endpoint: (HF_ENDPOINT || "https://huggingface.co").replace(/\/$/, ""),
    cache: hubCache(process.env, homedir()),
    // An empty variable counts as unset. An empty token would be a wrong token, and not no token.
    token: HF_TOKEN || null,
    fetch: (url, options) => fetch(url, options),
    progress(file, bytes, bytesTotal) {
      const line = `${file}: ${Math.floor((10 * bytes) / bytesTotal) * 10} % of ${(bytesTotal / 2 ** 20).toFixed(1)} MiB`;
      if (line !== lastLine) notice(line);
      lastLine = line;
    },
  };
  return hubModel(parseHubName(model), hub, needs);
}

/**
 * @throws {ConfigError} if the built-in policy cannot learn the run's envs, if data or programs of an env are missing, if the gate has no
 * certificate, or if the config names device cuda and this machine lacks a part of it.
 */
export function checkRun(config: RunConfig, machine: Machine = thisMachine): void {
  const { path, checkpoint, pretrainedOnly } = config.model;
  if (pretrainedOnly && path === null && checkpoint === null) {
    const text = `this config needs a pretrained model: the built-in policy cannot learn ${envsText(config)}`;
    throw new ConfigError(
      `${text}; set model.path (--model DIR; docs/models.md) or model.checkpoint (--from RUN), or model.pretrainedOnly to false`,
    );
  }
  checkData(config);
  if (config.join.listen !== null && isEncrypted(config.join.listen)) expectPossible("", () => serverTls(config.join));
  // The learner checks each device before it computes. This check takes a millisecond without CUDA, and comes before any actor starts.
  if (config.engine.device === "cuda")
    expectPossible("engine.device: cuda cannot be used: ", () => learnerEngine(config, 1, machine));
}

function expectPossible(what: string, attempt: () => unknown): void {
  try {
    attempt();
  } catch (error) {
    throw new ConfigError(`${what}${messageOf(error)}`, { cause: error });
  }
}

/** @throws {ConfigError} if data or programs of one of the run's envs are missing. */
export function checkData(config: RunConfig): void {
  for (const { tag } of envsWithRules(config)) checkPresent(tag);
}

/** @throws {ConfigError} if data or programs of the env are missing. */
export function checkPresent(tag: EnvTag): void {
  const missing = tag.missing?.() ?? null;
  if (missing !== null) throw new ConfigError(missing);
}
