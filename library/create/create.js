#!/usr/bin/env sh
// 2>/dev/null; exec "$(command -v bun || command -v node)" "$0" "$@"
// sh runs the line above; Bun and Node see it as a comment. `bun create bunraku FOLDER` installs Bunraku in a new folder, which
// `bunraku init` fills. The environment variable BUNRAKU_PACKAGE names another version (bunraku@VERSION) or a tarball.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder, ...more] = process.argv.slice(2);

function bun(...args) {
  const { status } = spawnSync(process.execPath, args, { cwd: folder, stdio: "inherit" });
  if (status !== 0) throw new Error(`\`bun ${args.join(" ")}\` failed in ${folder}, for the reason above`);
}

try {
  if (typeof Bun === "undefined")
    throw new Error("Bunraku runs on Bun 1.4.4 or newer, not on Node; run: bun create bunraku FOLDER");
  if (folder === undefined || folder.startsWith("-") || more.length > 0) {
    throw new Error("name the folder of the new project: bun create bunraku FOLDER");
  }
  if (existsSync(folder)) throw new Error(`${folder} exists already; name a new folder`);
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    throw new Error(`cannot make the folder ${folder}: ${error.message}; name another one`);
  }
  // Ctrl-C ends the installation too. This command then removes the folder.
  process.on("SIGINT", () => {});
  try {
    writeFileSync(join(folder, "package.json"), "{}\n");
    bun("add", "--ignore-scripts", "--exact", process.env.BUNRAKU_PACKAGE ?? "bunraku");
  } catch (error) {
    // Without the folder, the user can try the same command again.
    rmSync(folder, { recursive: true });
    throw error;
  }
  bun("x", "bunraku", "init");
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}
