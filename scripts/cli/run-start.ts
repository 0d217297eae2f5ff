/** What a run's folder keeps of each start: command, commit, versions, machine. */
import { spawnSync } from "node:child_process";
import { cpus } from "node:os";
import { join } from "node:path";
import { SECRETS } from "../../actors/config/config.ts";
import type { RunStart } from "../../actors/record/starts.ts";
import packageFile from "../../package.json";
import { shellWord } from "./shell-word.ts";

const root = join(import.meta.dir, "../..");

/** @param args  after the command's name */
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

/** An argument as a shell takes it, without a secret. */
function shown(arg: string): string {
  const path = /^--([\w.]+)=/.exec(arg)?.[1];
  if (path !== undefined && SECRETS.has(path)) return `--${path}=HIDDEN`;
  return shellWord(arg);
}

/** The commit, with a + if tracked files have changed since; null without git, or if this folder is not the top of a repository. */
function commit(): string | null {
  const git = (...args: string[]) => spawnSync("git", ["-C", root, ...args], { encoding: "utf8" });
  const { status, stdout } = git("rev-parse", "--show-prefix", "HEAD");
  const [prefix, head] = status === 0 ? stdout.split("\n") : [];
  if (prefix !== "" || head === undefined) return null;
  return git("status", "--porcelain", "--untracked-files=no").stdout === "" ? head : `${head}+`;
}
