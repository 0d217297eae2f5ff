/**
 * docs/tutorial.md followed in a copy of this repository, with an empty home: its commands in their order, its file as it is shown.
 * A run is the page's own with a smaller policy, warm start and number of updates behind it, so that it takes seconds.
 */
import { afterAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { command, root } from "./command.ts";
import { copyOfProject } from "./project.ts";
import { removeTemporaryFolders, temporaryFolder } from "./temporary.ts";

afterAll(removeTemporaryFolders);

const LONG = 240_000;
const stage = { batch: 8, learningRate: 1e-3, finalFraction: 1, warmUpSteps: 0, babble: 0.3, noise: 0.1, steps: 2 };
const QUICK = [
  "--updates=1",
  "--metrics.port=0",
  "--model.width=32",
  "--model.layers=1",
  "--model.heads=2",
  "--model.kvHeads=1",
  "--model.hidden=64",
  "--rollout.groups=4",
  "--rollout.groupSize=2",
  "--validate.episodes=8",
  `--warmStart.stages=${JSON.stringify([
    { ...stage, name: "learn" },
    { ...stage, name: "blur" },
  ])}`,
];

interface Step {
  /** A file to write, or commands to type. */
  readonly path: string | undefined;
  readonly text: string;
}

test(
  "the tutorial, from the top to the end",
  async () => {
    const folder = copyOfProject();
    const home = { HOME: temporaryFolder() };
    const page = readFileSync(join(root, "docs/tutorial.md"), "utf8");
    const steps: Step[] = [...page.matchAll(/^```(?:sh|ts (\S+))\n(.*?)^```$/gms)].map(([, path, text]) => ({
      path,
      text: text!,
    }));
    const done: string[] = [];
    for (const { path, text } of steps) {
      if (path !== undefined) {
        expect(existsSync(join(folder, path))).toBe(true);
        await Bun.write(join(folder, path), text);
        const { out } = await command(["check"], folder, home);
        expect(out.match(/^(ok|failed) +\w+/gm)).toEqual([
          "ok      types",
          "ok      types",
          "ok      lint",
          "ok      folders",
        ]);
        continue;
      }
      for (const line of text.trim().split("\n")) {
        const [bun, verb, ...words] = line.split(" ");
        expect([bun, /^(run|test)$/.test(verb!)]).toEqual(["bun", true]);
        const args = verb === "test" ? ["test", ...words] : words;
        const { code, err } = await command([...args, ...(args[0] === "cluster" ? QUICK : [])], folder, home);
        expect({ line, code, err: code === 0 ? "" : err }).toEqual({ line, code: 0, err: "" });
        done.push(args[0]!);
      }
    }
    expect([...new Set(done)].sort()).toEqual(["cluster", "curves", "diagnose", "doctor", "eval", "new-env", "test"]);
    expect(existsSync(join(folder, "street.svg"))).toBe(true);
  },
  LONG,
);
