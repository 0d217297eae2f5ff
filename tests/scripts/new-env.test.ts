import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { command, root } from "./command.ts";
import { copyOfProject } from "./project.ts";
import { removeTemporaryFolders } from "./temporary.ts";

afterAll(removeTemporaryFolders);

const tests = async (folder: string, files: string[]) => {
  const child = Bun.spawn([process.execPath, "test", "--timeout=120000", ...files], {
    cwd: folder,
    env: { ...process.env, FORCE_COLOR: "0" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [err, code] = await Promise.all([child.stderr.text(), child.exited]);
  return {
    code,
    failed: err.split("\n").filter((line) => line.startsWith("(fail)")),
    ran: /Ran (\d+) test/.exec(err)?.[1],
  };
};

const ALL_PASS = { code: 0, failed: [], ran: expect.stringMatching(/^\d+$/) };

describe("bun run new-env", () => {
  const folder = copyOfProject();

  test("writes an env that passes the checks, its own test and the registry's, and is played", async () => {
    const { code, out } = await command(["new-env", "LightsOut"], folder);
    expect({ code, out }).toEqual({
      code: 0,
      out: "envs/lights-out/game.ts\nenvs/lights-out/tags.ts\ntests/envs/lights-out.test.ts\n",
    });
    const check = await command(["check"], folder);
    expect(check.out.match(/^(ok|failed) +\w+/gm)).toEqual([
      "ok      types",
      "ok      types",
      "ok      lint",
      "ok      folders",
    ]);
    const files = ["tests/envs/lights-out.test.ts", "tests/envs/registry.test.ts"];
    expect(await tests(folder, files)).toEqual(ALL_PASS);
    const { out: played } = await command(["eval", "--env", "LightsOut", "--policy", "optimal", "--json"], folder);
    expect(JSON.parse(played.trim().split("\n").at(-1)!)).toMatchObject({ env: "LightsOut", success: 1 });
  });

  test("leaves what is there alone", async () => {
    const { code, err } = await command(["new-env", "LightsOut"], folder);
    expect({ code, err }).toEqual({ code: 2, err: "error: the env LightsOut exists already; use another name\n" });
  });

  test("gives what docs/new-env.md makes of it, word for word", async () => {
    const page = readFileSync(join(root, "docs/new-env.md"), "utf8");
    const shown = [...page.matchAll(/^```ts (\S+)\n(.*?)^```$/gms)].map(([, path, text]) => ({
      path: path!,
      text: text!,
    }));
    expect(shown.map(({ path }) => path)).toEqual([
      "envs/lights-out/game.ts",
      "envs/lights-out/tags.ts",
      "tests/envs/lights-out.test.ts",
    ]);
    for (const { path, text } of shown) {
      expect(existsSync(join(folder, path))).toBe(true);
      await Bun.write(join(folder, path), text);
    }
    const check = await command(["check"], folder);
    expect(check.out.match(/^(ok|failed) +\w+/gm)).toEqual([
      "ok      types",
      "ok      types",
      "ok      lint",
      "ok      folders",
    ]);
    expect(await tests(folder, ["tests/envs/lights-out.test.ts", "tests/envs/registry.test.ts"])).toEqual(ALL_PASS);
  });

  test.each([
    [[], "new-env needs a NAME: bun run new-env LightsOut"],
    [["lightsOut"], 'a NAME has letters and digits and starts with a capital, such as LightsOut; got "lightsOut"'],
    [["../Evil"], 'a NAME has letters and digits and starts with a capital, such as LightsOut; got "../Evil"'],
    [["Bandit"], "the env Bandit exists already; use another name"],
    [["One", "Two"], "Two"],
  ])("refuses %j", async (words, message) => {
    const { code, err } = await command(["new-env", ...words], folder);
    expect(code).toBe(2);
    expect(err).toContain(message);
  });
});
