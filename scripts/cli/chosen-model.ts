/** The pretrained model that a person names, made ready: found or downloaded, and checked as far as can be without its weights. */
import { homedir } from "node:os";
import { resolve } from "node:path";
import type { RunConfig } from "../../actors/config/config.ts";
import { hubCache, hubModel, isHubName, parseHubName } from "../../actors/policy/hub.ts";
import { checkPretrained } from "../../actors/policy/pretrained.ts";

/** The config with the model's folder, absolute: processes and later resumptions may run elsewhere. */
export async function withModel(config: RunConfig): Promise<RunConfig> {
  const { path } = config.model;
  return path === null ? config : { ...config, model: { ...config.model, path: await modelFolder(path) } };
}

/** @param named  a folder, or hf:OWNER/NAME[@REVISION] */
export async function modelFolder(named: string): Promise<string> {
  const folder = isHubName(named) ? await downloaded(named) : resolve(named);
  await checkPretrained(folder);
  return folder;
}

function downloaded(named: string): Promise<string> {
  const { HF_ENDPOINT, HF_TOKEN } = process.env;
  let shown = "";
  return hubModel(parseHubName(named), {
    endpoint: (HF_ENDPOINT ?? "https://huggingface.co").replace(/\/$/, ""),
    cache: hubCache(process.env, homedir()),
    token: HF_TOKEN ?? null,
    fetch: (url, options) => fetch(url, options),
    progress(file, bytes, bytesTotal) {
      const line = `${file}: ${Math.floor((10 * bytes) / bytesTotal) * 10} % of ${(bytesTotal / 2 ** 20).toFixed(1)} MiB`;
      if (line !== shown) process.stderr.write(`${line}\n`);
      shown = line;
    },
  });
}
