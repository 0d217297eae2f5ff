/** Every command is in the table and in package.json, has a page of help with valid examples, and suggests a flag for a mistyped one. */
import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { COMMANDS } from "../../scripts/cli/commands.ts";
import { commandHere, root } from "./command.ts";

const names = Object.keys(COMMANDS);

test("package.json and the files of scripts/ have the commands of the table", async () => {
  const { scripts } = (await Bun.file(join(root, "package.json")).json()) as { scripts: Record<string, string> };
  expect(scripts).toEqual(Object.fromEntries([...names, "help"].map((name) => [name, `bun scripts/run.ts ${name}`])));
  const files = readdirSync(join(root, "scripts")).filter((file) => file.endsWith(".ts") && file !== "run.ts");
  expect(files.toSorted()).toEqual(names.map((name) => `${name}.ts`).toSorted());
});

/** People and scripts rely on these names. */
const PROMISED =
  "cluster sampler env-server eval bench golden chaos simulate export replay play doctor new-env test check".split(" ");

test("every promised command is there", () => {
  expect(PROMISED.filter((name) => !names.includes(name))).toEqual([]);
});

test("-h is --help", async () => {
  const [short, long] = [await commandHere(["config", "-h"]), await commandHere(["config", "--help"])];
  expect(short).toEqual(long);
});

test.each(["cluster", "page", "serve", "setup"])("%s, which listens, has --port", async (name) => {
  expect((await commandHere([name, "--help"])).out).toContain("\n  --port N ");
});

describe.each(names)("bun run %s", (name) => {
  test("has a page of help, with examples of flags that it has", async () => {
    const { code, out, err } = await commandHere([name, "--help"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const [page, examples] = out.split("\nExamples:\n");
    expect(page).toStartWith(`bun run ${name}: ${COMMANDS[name]}\n`);
    const own = examples!.split("\n").filter((line) => new RegExp(`\\bbun run ${name}( |$)`).test(line));
    expect(own.length).toBeGreaterThan(0);
    // `--section.key` is a key of the config, which the page offers in one line.
    const flags = own.flatMap((line) =>
      [...line.matchAll(/ --([a-z][\w-]*)(\.?)/g)].map(([, flag, dot]) => flag! + dot),
    );
    const missing = flags.filter((flag) => !page!.includes(flag.endsWith(".") ? "--section.key=VALUE" : `--${flag}`));
    expect(missing).toEqual([]);
  });

  // `test` hands its arguments to bun test.
  test("suggests a flag for a mistyped one", async () => {
    const { code, err } = await commandHere([name, "--hlep"]);
    expect({ code, err }).toEqual({ code: 2, err: `error: ${name} has no flag --hlep; did you mean --help?\n` });
  });
});
