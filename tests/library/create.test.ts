/** What `bun create bunraku` refuses. `.ci/package` creates a project with it. */
import { expect, test } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../scripts/temporary.ts";

const script = join(import.meta.dir, "../../library/create/create.js");

test.each([
  ["no folder", [], "name the folder of the new project: bun create bunraku FOLDER"],
  ["a flag", ["--help"], "name the folder of the new project: bun create bunraku FOLDER"],
  ["a folder that exists", ["."], ". exists already; name a new folder"],
])("%s is refused, and nothing is written", async (_, args, text) => {
  const cwd = temporaryFolder();
  const child = Bun.spawn([process.execPath, script, ...args], { cwd, stderr: "pipe" });
  expect([await child.stderr.text(), await child.exited, readdirSync(cwd)]).toEqual([`error: ${text}\n`, 1, []]);
});

test("a folder whose package cannot be installed is removed, so that the command can be tried again", async () => {
  const cwd = temporaryFolder();
  const env = { ...process.env, BUNRAKU_PACKAGE: join(cwd, "none.tgz") };
  const child = Bun.spawn([process.execPath, script, "mine"], { cwd, env, stdout: "ignore", stderr: "pipe" });
  expect(await child.stderr.text()).toContain("failed in mine, for the reason above");
  expect([await child.exited, readdirSync(cwd)]).toEqual([1, []]);
});

test("a folder is removed if Ctrl-C ends the installation of its package", async () => {
  const cwd = temporaryFolder();
  const asked = Promise.withResolvers<void>();
  await using server = Bun.serve({
    port: 0,
    fetch() {
      asked.resolve();
      return new Promise<Response>(() => {});
    },
  });
  const env = { ...process.env, BUNRAKU_PACKAGE: `${server.url}bunraku.tgz` };
  const child = Bun.spawn([process.execPath, script, "mine"], {
    cwd,
    env,
    detached: true,
    stdio: ["ignore", "ignore", "ignore"],
  });
  await asked.promise;
  expect(readdirSync(cwd)).toEqual(["mine"]);
  // A terminal sends it to the whole group.
  process.kill(-child.pid, "SIGINT");
  expect([await child.exited, readdirSync(cwd)]).toEqual([1, []]);
});

test("a folder that cannot be made, because a file has the name of one above it, is refused in one line", async () => {
  const cwd = temporaryFolder();
  writeFileSync(join(cwd, "taken"), "");
  const child = Bun.spawn([process.execPath, script, "taken/mine"], { cwd, stderr: "pipe" });
  expect(await child.stderr.text()).toMatch(/^error: cannot make the folder taken\/mine: .*; name another one\n$/);
});

test("both packages have one version", async () => {
  const versionOf = async (file: string) => (await Bun.file(join(import.meta.dir, "../..", file)).json()).version;
  expect(await versionOf("library/create/package.json")).toBe(await versionOf("package.json"));
});
