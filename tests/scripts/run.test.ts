import { describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { command } from "./command.ts";
import { smallProject } from "./project.ts";

/** A process that holds the lock of an install in this folder, and a command that waits for it. @param also  more code of the process */
async function waitingForInstall(folder: string, also = "") {
  const hold =
    "const { Database } = require('bun:sqlite'); const lock = new Database('node_modules/.bunraku/lock.sqlite');" +
    `lock.run('BEGIN EXCLUSIVE'); console.log('held'); setInterval(() => lock, 1e6); ${also}`;
  const holder = Bun.spawn([process.execPath, "-e", hold], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  await holder.stdout.getReader().read();
  const waiting = Bun.spawn([process.execPath, "scripts/run.ts", "hello"], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
  });
  return { holder, waiting, reader: waiting.stderr.getReader() };
}

const installs = (err: string) => err.split("\n").filter((line) => line.startsWith("installing dependencies")).length;

describe("a command of a project that was never installed", () => {
  test("installs it, on standard error only, and runs; the next one just runs", async () => {
    const folder = await smallProject();
    const first = await command(["hello"], folder);
    expect({ ...first, err: installs(first.err) }).toEqual({ code: 0, out: "good evening\n", err: 1 });
    expect(await command(["hello"], folder)).toEqual({ code: 0, out: "good evening\n", err: "" });
  });

  test("installs once when two start at the same moment", async () => {
    const folder = await smallProject();
    const both = await Promise.all([command(["hello"], folder), command(["hello"], folder)]);
    expect(both.map(({ code, out }) => ({ code, out }))).toEqual(Array(2).fill({ code: 0, out: "good evening\n" }));
    expect(both.reduce((sum, { err }) => sum + installs(err), 0)).toBe(1);
  });

  test("finds the very Bun that runs it, with an empty home and no bun in PATH", async () => {
    const folder = await smallProject();
    const home = join(folder, "home");
    mkdirSync(home);
    const child = Bun.spawn([process.execPath, "run", "hello"], {
      cwd: folder,
      env: { HOME: home, PATH: home },
      stdio: ["ignore", "pipe", "ignore"],
    });
    expect([await child.stdout.text(), await child.exited]).toEqual(["good evening\n", 0]);
  });

  test("waits for another install, and continues when that one is killed", async () => {
    const folder = await smallProject();
    mkdirSync(join(folder, "node_modules/.bunraku"), { recursive: true });
    const { holder, waiting, reader } = await waitingForInstall(folder);
    const said = new TextDecoder().decode((await reader.read()).value);
    expect(said).toBe("another command is installing the dependencies; waiting for it …\n");
    holder.kill("SIGKILL");
    while (!(await reader.read()).done);
    expect([await waiting.stdout.text(), await waiting.exited]).toEqual(["good evening\n", 0]);
  });

  test("installs nothing after another install has ended well", async () => {
    const folder = await smallProject();
    await command(["hello"], folder);
    rmSync(join(folder, "node_modules/.bunraku/installed"));
    const stamp =
      "process.on('SIGTERM', () => {" +
      "const wanted = new Bun.CryptoHasher('sha256').update(require('fs').readFileSync('bun.lock')).digest('hex');" +
      "require('fs').writeFileSync('node_modules/.bunraku/installed', wanted); process.exit(); });";
    const { holder, waiting, reader } = await waitingForInstall(folder, stamp);
    let said = new TextDecoder().decode((await reader.read()).value);
    holder.kill("SIGTERM");
    for (let part = await reader.read(); !part.done; part = await reader.read())
      said += new TextDecoder().decode(part.value);
    expect([await waiting.stdout.text(), await waiting.exited]).toEqual(["good evening\n", 0]);
    expect(said).toBe("another command is installing the dependencies; waiting for it …\n");
  });

  test("names a lock that cannot be used", async () => {
    const folder = await smallProject();
    const lock = join(folder, "node_modules/.bunraku/lock.sqlite");
    mkdirSync(join(lock, ".."), { recursive: true });
    writeFileSync(lock, "garbage ".repeat(100));
    expect(await command(["hello"], folder)).toEqual({
      code: 1,
      out: "",
      err: `error: cannot lock the install: ${lock}: file is not a database; make its folder writable, or delete the file, and run the command again\n`,
    });
  });

  test("takes up again what was cut short: a changed lock file, or a missing stamp", async () => {
    const folder = await smallProject();
    await command(["hello"], folder);
    appendFileSync(join(folder, "bun.lock"), "\n");
    const again = await command(["hello"], folder);
    expect([again.code, again.out, installs(again.err)]).toEqual([0, "good evening\n", 1]);
  });

  test("runs no post-install script, not even of a package that package.json trusts", async () => {
    const greeting = { name: "greeting", version: "1.0.0", main: "index.js", scripts: { postinstall: "touch ran" } };
    const folder = await smallProject({
      "package.json": JSON.stringify({
        name: "small",
        dependencies: { greeting: "file:./greeting" },
        trustedDependencies: ["greeting"],
      }),
      "greeting/package.json": JSON.stringify(greeting),
    });
    expect((await command(["hello"], folder)).out).toBe("good evening\n");
    expect(existsSync(join(folder, "node_modules/greeting/ran"))).toBe(false);
  });

  test("says in one line that it cannot install, and leaves no stamp", async () => {
    const folder = await smallProject();
    writeFileSync(join(folder, "package.json"), JSON.stringify({ dependencies: { greeting: "file:./gone" } }));
    const { code, out, err } = await command(["hello"], folder);
    expect([code, out]).toEqual([1, ""]);
    expect(err.trim().split("\n").at(-1)).toStartWith("error: cannot install the dependencies: `bun install");
    expect(existsSync(join(folder, "node_modules/.bunraku/installed"))).toBe(false);
  });
});

describe("bun run COMMAND", async () => {
  const folder = await smallProject();
  await command(["hello"], folder);
  const run = (...args: string[]) => command(args, folder);

  test("hands arguments over and passes the exit code on", async () => {
    expect(await run("hello", "to", "--all")).toEqual({ code: 2, out: "good evening to --all\n", err: "" });
  });

  test("lists the commands of the table", async () => {
    const { code, out } = await run("--help");
    expect(code).toBe(0);
    const rows = out.trimEnd().split("\n").slice(2);
    expect(rows.slice(0, 2)).toEqual(["  hello   say hello", "  fall    fail"]);
    expect(rows).toHaveLength(7);
    expect((await run()).code).toBe(2);
  });

  test.if(existsSync("/dev/full"))(
    "fails in one line if standard output is full, and not if it is closed",
    async () => {
      const into = async (redirected: string) => {
        const stdio = ["ignore", "ignore", "pipe"] as ["ignore", "ignore", "pipe"];
        const child = Bun.spawn(["sh", "-c", redirected, process.execPath], { cwd: folder, stdio });
        return [await child.stderr.text(), await child.exited] as const;
      };
      const full =
        "error: cannot write to standard output: ENOSPC: no space left on device, write; make room, or redirect the output elsewhere\n";
      expect(await into('"$0" scripts/run.ts hello > /dev/full')).toEqual([full, 1]);
      expect(await into('"$0" scripts/run.ts help > /dev/full')).toEqual([full, 1]);
      expect(await into('("$0" scripts/run.ts hello; echo $? >&2) | true')).toEqual(["0\n", 0]);
    },
  );

  test("suggests the nearest command", async () => {
    expect(await run("helo")).toEqual({ code: 2, out: "", err: 'error: no command "helo"; did you mean hello?\n' });
    expect((await run("constructor")).err).toBe('error: no command "constructor"; `bun run help` lists them\n');
    expect((await run("part")).err).toBe('error: no command "part"; `bun run help` lists them\n');
  });

  test("reports a failure in one line with exit code 1, and where it came from only with --verbose", async () => {
    expect(await run("fall")).toEqual({ code: 1, out: "", err: "error: cannot stand: 1 leg of 2\n" });
    expect((await run("fall", "--verbose")).err).toContain("scripts/fall.ts:1");
    expect(await run("trip")).toEqual({ code: 1, out: "", err: "error: a stone\n" });
    expect((await run("trip", "--verbose")).err).toContain("scripts/trip.ts:1");
  });

  test("reports each fault of a wrong use on its own line with exit code 2", async () => {
    expect(await run("misuse")).toEqual({ code: 2, out: "", err: "error: first fault\nerror: second fault\n" });
  });
});
