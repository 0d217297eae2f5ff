/**
 * `bun run export`: writes a run's record or policy for other tools. Metrics and episodes for TensorBoard, DuckDB, pandas or a
 * spreadsheet, and episodes as chats; the policy, or a pretrained model, as a Hugging Face folder, a GGUF file, or adapters for peft,
 * in float32, so that they compute what was trained.
 */
import { type Exportable, exportGguf, exportHuggingFace, exportPeft } from "../actors/policy/export.ts";
import { loadPretrained, readPretrained } from "../actors/policy/pretrained.ts";
import { readRunConfig, savedPolicy } from "../actors/policy/saved-policy.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { layParameters } from "../model/policy/parameters.ts";
import { modelFolder } from "./cli/chosen-model.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { warn } from "./cli/say.ts";
import {
  type Counts,
  exportChats,
  exportCsv,
  exportParquet,
  exportTensorboard,
  exportWandb,
} from "./export/records.ts";

const FORMATS = { hf: exportHuggingFace, gguf: exportGguf, peft: exportPeft } as const;
const RECORDS = {
  tensorboard: exportTensorboard,
  parquet: exportParquet,
  csv: exportCsv,
  jsonl: exportChats,
  "wandb-offline": exportWandb,
} as const;
/** Those that hold episodes, which may be chosen from. */
const WITH_EPISODES = ["parquet", "csv", "jsonl"];

const command = {
  name: "export",
  summary: "write a run's record or policy for other tools",
  flags: {
    run: {
      type: "text",
      value: "RUN",
      text: "Folder of a run whose record is written",
    },
    policy: { type: "text", value: "RUN", text: "Folder of a run whose policy is written: hf, gguf, peft" },
    checkpoint: { type: "text", value: "NAME", text: "One of the run's, as u000120; its newest if left out" },
    model: { type: "text", value: "DIR", text: "A Hugging Face model in place of a run's policy; or hf:OWNER/NAME" },
    to: {
      type: "text",
      value: "FORMAT",
      text: "Of a record, tensorboard: event files; parquet or csv: a folder of tables; jsonl: chats, one a line; wandb-offline: a folder for wandb sync. Of a policy, hf: a folder for transformers; gguf: a file for llama.cpp; peft: adapters",
    },
    env: { type: "text", value: "NAME", text: "Of a record: episodes of this env only" },
    purpose: { type: "text", value: "WHICH", text: "Of a record: train or validate, episodes of that kind only" },
    solved: { type: "switch", text: "Of a record: only episodes that ended in success" },
    out: { type: "text", value: "PATH", text: "What to write; it must not exist" },
    json: { type: "switch", text: "End standard output with one JSON object" },
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

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags } = parseOptions(command, args);
  const { run, policy, model, to, out } = flags;
  const sources = [run, policy, model].filter((source) => source !== undefined);
  if (sources.length !== 1) throw new UsageError("name one source: --run RUN, --policy RUN or --model DIR");
  const formats = run === undefined ? FORMATS : RECORDS;
  if (to === undefined || !Object.hasOwn(formats, to)) throw new UsageError(wrongFormat(to, Object.keys(formats)));
  if (out === undefined) throw new UsageError("--out PATH is needed: what to write");
  if (run === undefined) return exportPolicy(flags, to as keyof typeof FORMATS, out);
  return exportRecord(run, flags, to as keyof typeof RECORDS, out);
}

function wrongFormat(to: string | undefined, formats: readonly string[]): string {
  const takes = `--to takes ${formats.join(", ")}`;
  if (to === undefined) return takes;
  if (Object.hasOwn(RECORDS, to)) return `--to ${to} is of a run's record: name it with --run`;
  if (Object.hasOwn(FORMATS, to)) return `--to ${to} is of a policy: name its run with --policy`;
  return `${takes}, got "${to}"${didYouMean(nearest(to, formats))}`;
}

type Flags = ReturnType<typeof parseOptions<typeof command>>["flags"];

async function exportRecord(folder: string, flags: Flags, to: keyof typeof RECORDS, out: string): Promise<number> {
  const { checkpoint, env, purpose, solved, json } = flags;
  if (checkpoint !== undefined) throw new UsageError("--checkpoint is one of a policy: name --policy");
  if (!WITH_EPISODES.includes(to) && (env ?? purpose ?? solved) !== undefined)
    throw new UsageError(`--env, --purpose and --solved choose episodes, and ${to} holds none`);
  if (purpose !== undefined && purpose !== "train" && purpose !== "validate")
    throw new UsageError(`--purpose is train or validate, got "${purpose}"`);
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
    throw new UsageError("--checkpoint is one of a run's: name --policy");
  for (const name of ["env", "purpose", "solved"] as const)
    if (flags[name] !== undefined) throw new UsageError(`--${name} chooses episodes of a record: name --run`);
  const policy =
    run === undefined ? await pretrained(await modelFolder(folder!)) : await ofRun(run, checkpoint ?? null);
  await FORMATS[to](policy, out);
  console.log(`wrote ${out}: ${policy.parameters.length} parameters, from ${policy.from}`);
  if (json) console.log(JSON.stringify({ out, format: to, parameters: policy.parameters.length, from: policy.from }));
  return 0;
}

/** With where it is from, for people. */
type Source = Exportable & { readonly from: string };

async function pretrained(folder: string): Promise<Source> {
  const { model, dialogue } = readPretrained(folder);
  const { flat } = layParameters(model);
  await loadPretrained(folder, model, layParameters(model, flat));
  return { model, dialogue, parameters: flat, base: folder, contextTokensMax: 0, from: folder };
}

async function ofRun(folder: string, checkpoint: string | null): Promise<Source> {
  const config = readRunConfig(folder);
  const { model, dialogue, parameters, path, skipped } = await savedPolicy(folder, config, checkpoint);
  for (const { path, reason } of skipped) warn(`${path} is not used: ${reason}`);
  const { contextTokensMax } = config.rollout;
  return { model, dialogue, parameters, base: config.model.path, contextTokensMax, from: path };
}
