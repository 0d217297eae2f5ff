/** Refuses a run that cannot begin or cannot learn, before its folder is made. */
import type { RunConfig } from "../actors/config/config.ts";
import { ConfigError, messageOf } from "../actors/errors.ts";
import { envsText, envsWithRules } from "../actors/play/envs-of-run.ts";
import { serverTls } from "../actors/transport/tls.ts";
import type { EnvTag } from "../envs/tag.ts";

/** @throws {ConfigError} if the built-in policy cannot learn this, data or programs of an env are missing, or the gate has no certificate. */
export function checkRun(config: RunConfig): void {
  const { path, checkpoint, pretrainedOnly } = config.model;
  if (pretrainedOnly && path === null && checkpoint === null) {
    const text = `this config needs a pretrained model: the built-in policy cannot learn ${envsText(config)}`;
    throw new ConfigError(
      `${text}; set model.path (--model DIR; docs/models.md) or model.checkpoint (--from RUN), or model.pretrainedOnly to false`,
    );
  }
  checkData(config);
  checkGate(config.join);
}

function checkGate(join: RunConfig["join"]): void {
  if (join.listen?.startsWith("wss:") !== true) return;
  try {
    serverTls(join);
  } catch (error) {
    throw new ConfigError(messageOf(error), { cause: error });
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
