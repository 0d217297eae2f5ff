/** Two supervisors never hold one run folder, and a dead supervisor does not keep the folder. */
import { Database } from "bun:sqlite";
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { lockRun } from "../../../actors/supervisor/run-lock.ts";
import { figure } from "../../figure.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const holders: Bun.Subprocess[] = [];
afterAll(() => {
  // A failed test must not leave one behind.
  for (const holder of holders) holder.kill("SIGKILL");
});

/** Another process that holds the lock until it is killed. */
async function holder(folder: string) {
  const script = `
    import { lockRun } from ${JSON.stringify(join(import.meta.dir, "../../../actors/supervisor/run-lock.ts"))};
    globalThis.lock = lockRun(${JSON.stringify(folder)});
    console.log("held");
    setInterval(() => {}, 1000);`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
  holders.push(child);
  for await (const _ of child.stdout) break;
  return child;
}

test("is held by one process at a time, which the refusal names; a killed process frees it", async () => {
  const folder = temporaryFolder();
  const other = await holder(folder);
  expect(() => lockRun(folder)).toThrow(
    new RegExp(`^${folder} is in use by process ${other.pid} \\(since .* UTC\\); stop that process first$`),
  );
  other.kill("SIGKILL");
  await other.exited;
  const mine = lockRun(folder);
  expect(() => lockRun(folder)).toThrow(`process ${process.pid} (since`);
  mine.release();
  lockRun(folder).release();
  figure("two supervisors, one folder", { refused: 2, "free after its holder's SIGKILL": "at once" });
});

test("is refused in one line while another process is taking it", () => {
  const folder = temporaryFolder();
  lockRun(folder).release();
  // A process that takes the lock keeps readers out while it commits its pid.
  using other = new Database(join(folder, "lock.sqlite"));
  other.run("BEGIN EXCLUSIVE");
  expect(() => lockRun(folder)).toThrow(`${folder} is in use by another process; stop that process first`);
});

test.each([
  ["garbage", (file: string) => writeFileSync(file, "garbage ".repeat(100)), "file is not a database"],
  ["a folder", (file: string) => mkdirSync(file), "unable to open database file"],
])("in a file that is %s, the refusal names the file", (_, make, reason) => {
  const folder = temporaryFolder();
  const file = join(folder, "lock.sqlite");
  make(file);
  expect(() => lockRun(folder)).toThrow(
    `cannot lock ${folder}: ${file} cannot be used as a lock (${reason}); ` +
      "delete lock.sqlite if no command uses the folder, and try again",
  );
});

test("in a folder where nothing can be written, the refusal says so, and advises to delete nothing", () => {
  // No account can make a file there.
  expect(() => lockRun("/proc/self")).toThrow(
    "cannot lock /proc/self: /proc/self/lock.sqlite cannot be used as a lock (unable to open database file); " +
      "a run writes into its folder: make the folder writable for this account, or copy it to a disk where this account can write",
  );
});
