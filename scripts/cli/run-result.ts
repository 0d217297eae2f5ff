/** What `bun run cluster` writes into a file when a run starts, and prints when the run ends. */
import { spawnSync } from "node:child_process";
import { cpus } from "node:os";
import { join } from "node:path";
import { SECRETS } from "../../actors/config/config.ts";
import { percent, plural } from "../../actors/number-text.ts";
import type { Costs } from "../../actors/record/costs.ts";
import type { RunStart } from "../../actors/record/starts.ts";
import type { Report } from "../../actors/training/report.ts";
import packageFile from "../../package.json";
import type { MemoryUse } from "./memory.ts";
import { amountText, COST_NAMES, shellWord } from "./texts.ts";

/** @param temperature  temperature of the validation */
export function resultTable(
  report: Report,
  temperature: number,
  folder: string,
  memory: readonly MemoryUse[],
  costs: Costs,
): string {
  const { success, successAtOne, minutes, minutesInAll, updates, tokensPerSecond } = report;
  const rows: [string, number | null, number | null, string][] = [
    ["random", success.random, null, "a player that chooses every action at random"],
    ["taught", success.taught, successAtOne.taught, "the policy after the first stage of its warm start"],
    ["before", success.before, null, "the policy that reinforcement started from"],
    ["after", success.after, successAtOne.after, `the policy after ${plural(updates, "update")}`],
    ["best possible", success.best, null, "the optimal player on the same boards"],
  ];
  if (success.expert !== null) {
    rows.push(["expert", success.expert, null, "a scripted player; the best possible is unknown"]);
  }
  return [
    "",
    `${"success".padEnd(13)} ${cell(`T ${temperature}`)} ${cell("T 1")}`,
    ...rows.map(
      ([name, at, atOne, text]) => `${name.padEnd(13)} ${cell(percent(at))} ${cell(percent(atOne))}   ${text}`,
    ),
    ...envLines(report.envs),
    "",
    `${minutes.toFixed(1)} min of reinforcement, ${minutesInAll.toFixed(1)} min in all${tokensPerSecond === null ? "" : `; ${tokensPerSecond.toFixed(0)} tokens/s`}`,
    ...costLines(costs),
    ...memoryLines(memory),
    `the run is in ${folder}; its page: bun run page ${shellWord(folder)}`,
  ].join("\n");
}

const cell = (text: string) => text.padStart(8);

/** The success of each env, for a run with a mix of envs. */
function envLines(envs: Report["envs"]): string[] {
  if (envs === null) return [];
  const width = Math.max(...Object.keys(envs).map((name) => name.length));
  const columns = ["random", "before", "after", "best"] as const;
  return [
    "",
    `${"".padEnd(width)} ${columns.map(cell).join(" ")}`,
    ...Object.entries(envs).map(([name, success]) => {
      return `${name.padEnd(width)} ${columns.map((column) => cell(percent(success[column]))).join(" ")}`;
    }),
  ];
}

/** "cost of reinforcement: 1,200 tokens (40 per point of success), …". */
function costLines({ reinforcement, perPoint }: Costs): string[] {
  const parts = COST_NAMES.filter(([key]) => reinforcement[key] !== null).map(([key, name]) => {
    const each = perPoint[key] === null ? "" : ` (${amountText(perPoint[key])} per point of success)`;
    return `${amountText(reinforcement[key])} ${name}${each}`;
  });
  return parts.length === 0 ? [] : [`cost of reinforcement: ${parts.join(", ")}`];
}

function memoryLines(memory: readonly MemoryUse[]): string[] {
  if (memory.length === 0) return [];
  const mib = (bytes: number, digits = 0) => (bytes / 2 ** 20).toFixed(digits);
  const total = memory.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  const parts = memory.map(({ actor, peakBytes, slopeBytesPerMinute: slope }) => {
    const growth = slope === null ? "" : ` (${slope >= 0 ? "+" : ""}${mib(slope, 1)}/min)`;
    return `${actor} ${mib(peakBytes)}${growth}`;
  });
  return [`memory at most ${mib(total)} MiB: ${parts.join(", ")}`];
}

const root = join(import.meta.dir, "../..");

/** @param args  the arguments after the command's name */
export function thisStart(name: string, args: readonly string[], now: Date): RunStart {
  const { version, dependencies } = packageFile;
  return {
    at: now.toISOString(),
    command: ["bun", "run", name, ...args.map(shown)].join(" "),
    commit: commit(),
    versions: { bunraku: version, bun: Bun.version, onnxruntime: dependencies["onnxruntime-node"] },
    machine: `${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model.trim() ?? "unknown CPU"}`,
  };
}

/** An argument, quoted for a shell. `HIDDEN` replaces a secret. */
function shown(arg: string): string {
  const path = /^--([\w.]+)=/.exec(arg)?.[1];
  if (path !== undefined && SECRETS.has(path)) return `--${path}=HIDDEN`;
  return shellWord(arg);
}

/** The commit, with a + if tracked files differ from it; null if git is missing or this folder is not the top of a repository. */
function commit(): string | null {
  const git = (...args: string[]) => spawnSync("git", ["-C", root, ...args], { encoding: "utf8" });
  const { status, stdout } = git("rev-parse", "--show-prefix", "HEAD");
  const [prefix, head] = status === 0 ? stdout.split("\n") : [];
  if (prefix !== "" || head === undefined) return null;
  return git("status", "--porcelain", "--untracked-files=no").stdout === "" ? head : `${head}+`;
}
