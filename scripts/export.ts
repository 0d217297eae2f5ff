/**
 * `bun run export`: writes a run's record or policy for other tools. From a record it writes metrics for TensorBoard, tables of metrics and
 * episodes for DuckDB, pandas or a spreadsheet, or episodes as chats. From a policy or a pretrained model it writes a Hugging Face folder or a
 * GGUF file; from a policy also its adapters for peft. Weights are in float32, the precision of training.
 */
import { type Exportable, exportGguf, exportHuggingFace, exportPeft } from "../actors/policy/export.ts";
import { loadPretrained, readPretrained } from "../actors/policy/pretrained.ts";
import { readRunConfig, savedPolicy } from "../actors/policy/saved-policy.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { modelFolder } from "../library/chosen-model.ts";
import { baseOf } from "../model/policy/model-config.ts";
import { layParameters, parameterCount } from "../model/policy/parameters.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { say, warn } from "./cli/print.ts";
import { type Counts, exportChats, exportCsv, exportParquet, exportTensorboard } from "./export/records.ts";

const FORMATS = { hf: exportHuggingFace, gguf: exportGguf, peft: exportPeft } as const;
const RECORDS = { tensorboard: exportTensorboard, parquet: exportParquet, csv: exportCsv, jsonl: exportChats } as const;
/** Formats that hold episodes; flags can filter them. */
const WITH_EPISODES = ["parquet", "csv", "jsonl"];

export const command = {
  flags: {
    run: flag.text("RUN", "Write the record of the run in this folder"),
    policy: flag.text("RUN", "Write the policy of the run in this folder"),
    checkpoint: flag.text("NAME", "With --policy: a checkpoint of the run, such as u000120; the newest if left out"),
    model: flag.text("DIR", "Write this pretrained model: its folder, or hf:OWNER/NAME"),
    to: flag.text(
      "FORMAT",
      "With --run: tensorboard (event files, which W&B also imports), parquet or csv (a folder of tables), jsonl (one chat a line). With --policy or --model: hf (a folder for transformers), gguf (a file for llama.cpp). With --policy: peft (the policy's adapters)",
    ),
    env: flag.text("NAME", "With --run: only episodes of this env"),
    purpose: flag.text("WHICH", "With --run: train or validate, to write only episodes of that purpose"),
    solved: flag.switch("With --run: only solved episodes"),
    out: flag.text("PATH", "File or folder to write; it must not exist"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run export --run runs/2026-11-20-bandit-1 --to tensorboard --out exported/bandit",
    "bun run export --run runs/2026-11-20-bandit-1 --to parquet --out exported/tables",
    "bun run export --run runs/2026-11-20-bandit-1 --to jsonl --solved --purpose train --out exported/sft.jsonl",
    "bun run export --policy runs/2026-11-20-bandit-1 --to hf --out exported/bandit",
    "bun run export --policy runs/2026-11-20-bandit-1 --checkpoint u000010 --to gguf --out exported/bandit.gguf",
    "bun run export --model models/Qwen2.5-0.5B-Instruct --to gguf --out qwen.gguf",
  ],
} as const satisfies Command;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  const { run, policy, model, to, out } = flags;
  const sources = [run, policy, model].filter((source) => source !== undefined);
  if (sources.length !== 1) throw new UsageError("name one source: --run RUN, --policy RUN or --model DIR");
  const formats = run === undefined ? FORMATS : RECORDS;
  if (to === undefined || !Object.hasOwn(formats, to)) throw new UsageError(wrongFormat(to, Object.keys(formats)));
  if (out === undefined) throw new UsageError("name the file or folder to write: --out PATH");
  if (run === undefined) return exportPolicy(flags, to as keyof typeof FORMATS, out);
  return exportRecord(run, flags, to as keyof typeof RECORDS, out);
}

function wrongFormat(to: string | undefined, formats: readonly string[]): string {
  const takes = `--to takes ${formats.join(", ")}`;
  if (to === undefined) return takes;
  if (to === "wandb-offline")
    return "--to wandb-offline was removed; use --to tensorboard, and `wandb sync` the folder it writes";
  if (Object.hasOwn(RECORDS, to)) return `--to ${to} writes the record of a run; name the run with --run`;
  if (Object.hasOwn(FORMATS, to))
    return `--to ${to} writes a policy; name its run with --policy, or a pretrained model with --model`;
  return `${takes}, got "${to}"${didYouMean(nearest(to, formats))}`;
}

type Flags = Parsed<typeof command>["flags"];

async function exportRecord(folder: string, flags: Flags, to: keyof typeof RECORDS, out: string): Promise<number> {
  const { checkpoint, env, purpose, solved, json } = flags;
  if (checkpoint !== undefined) throw new UsageError("--checkpoint chooses a policy; name its run with --policy");
  if (!WITH_EPISODES.includes(to) && (env ?? purpose ?? solved) !== undefined)
    throw new UsageError(`--env, --purpose and --solved choose episodes, and ${to} holds none; leave them out`);
  if (purpose !== undefined && purpose !== "train" && purpose !== "validate")
    throw new UsageError(`--purpose takes train or validate, got "${purpose}"`);
  const counts: Counts = await RECORDS[to]({
    folder,
    out,
    episodes: { env, purpose, ...(solved && { success: true }) },
  });
  const parts = Object.entries(counts).map(([what, count]) => `${count} ${what}`);
  console.log(`wrote ${out}: ${parts.join(", ")}`);
  if (json) console.log(JSON.stringify({ out, format: to, ...counts }));
  return 0;
}

async function exportPolicy(flags: Flags, to: keyof typeof FORMATS, out: string): Promise<number> {
  const { policy: run, model: folder, checkpoint, json } = flags;
  if (checkpoint !== undefined && run === undefined)
    throw new UsageError("--checkpoint chooses a run's policy; name the run with --policy");
  for (const name of ["env", "purpose", "solved"] as const)
    if (flags[name] !== undefined)
      throw new UsageError(`--${name} chooses episodes of a record; name the run with --run`);
  const policy =
    run === undefined ? await pretrained(await modelFolder(folder!, say)) : await ofRun(run, checkpoint ?? null);
  await FORMATS[to](policy, out);
  const { from, model } = policy;
  // All formats except peft hold the model with its adapters merged into the weights.
  const parameters = parameterCount(to === "peft" ? model : baseOf(model));
  console.log(`wrote ${out}: ${parameters} parameters, from ${from}`);
  if (json) console.log(JSON.stringify({ out, format: to, parameters, from }));
  return 0;
}

/** A policy to export, and the path from which the command read it. */
type Source = Exportable & { readonly from: string };

async function pretrained(folder: string): Promise<Source> {
  const { model, dialogue } = readPretrained(folder);
  const parameters = layParameters(model);
  await loadPretrained(folder, model, parameters);
  return { model, dialogue, parameters: parameters.flat, base: folder, contextTokensMax: 0, from: folder };
}

async function ofRun(folder: string, checkpoint: string | null): Promise<Source> {
  const config = readRunConfig(folder);
  const { model, dialogue, parameters, path, skipped } = await savedPolicy(folder, config, checkpoint);
  for (const { path, reason } of skipped) warn(`${path} is not used: ${reason}`);
  const { contextTokensMax } = config.rollout;
  return { model, dialogue, parameters, base: config.model.path, contextTokensMax, from: path };
}
