import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bundleReplayCode } from "../../../actors/dashboard/assets.ts";
import { within } from "../../../actors/errors.ts";
import { digestOf, importEnvs, importModules, withLocalModules } from "../../../actors/play/env-modules.ts";
import type { LanguageGame } from "../../../envs/env.ts";
import { envModules, envTag, removeEnvs } from "../../../envs/registry.ts";
import { openLocal } from "../../../envs/tag.ts";
import { defineEnv } from "../../../library/env.ts";
import { loadProject, withTagsForPaths } from "../../../library/project.ts";
import { aConfig } from "../../fixtures.ts";
import { root } from "../../scripts/command.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

afterAll(() => {
  for (const module of envModules()) removeEnvs(module);
});

/** A project with these files, by path. */
function project(files: Record<string, string>): string {
  const folder = temporaryFolder();
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/bunraku"));
  for (const [path, text] of Object.entries(files)) writeFileSync(join(folder, path), text);
  return folder;
}

/** An env whose act is `act`, on line 5. */
const envOf = (
  tag: string,
  act = "return { reward: half, done: true, effective: true, valid: true, success: true };",
) => `
import { defineEnv } from "bunraku/env";
import { half } from "./half.ts";
const game = { kind: "discrete", actions: ["Go"], render: () => "a road",
  act() { ${act} } };
export default defineEnv({ tag: "${tag}", instruction: "Go.", actionsMax: 1, open: () => game });
`;
const HALF = "export const half = 0.5;";

describe("importEnvs", () => {
  test("adds a module's envs, with the digest of its sources", async () => {
    const folder = project({ "road.ts": envOf("Road"), "half.ts": HALF });
    const module = await importEnvs("./road.ts", folder);
    expect(module).toEqual({ path: join(folder, "road.ts"), digest: digestOf(join(folder, "road.ts")) });
    expect(envTag("Road").digest).toBe(module.digest);
    expect(await importEnvs("./road.ts", folder)).toBe(module);
    expect(await withTagsForPaths("eval", ["--env", "./road.ts", "--env=./road.ts", "./road.ts"], folder)).toEqual([
      "--env",
      "Road",
      "--env=Road",
      "./road.ts",
    ]);
    const several = ["--env", "Bandit,./road.ts", "--env=./road.ts,./road.ts"];
    expect(await withTagsForPaths("eval", several, folder)).toEqual(["--env", "Bandit,Road", "--env=Road,Road"]);
  });

  test("adds a module once that is named twice at the same time", async () => {
    const folder = project({ "twice.ts": envOf("Twice"), "half.ts": HALF });
    const [one, other] = await Promise.all([importEnvs("./twice.ts", folder), importEnvs("./twice.ts", folder)]);
    expect(one).toBe(other);
    expect(envTag("Twice").digest).toBe(one.digest);
  });

  test("a digest is that of the module and of what it imports by relative path, wherever they are", () => {
    const digest = (files: Record<string, string>) => digestOf(join(project(files), "road.ts"));
    const here = digest({ "road.ts": envOf("Road"), "half.ts": HALF });
    expect(digest({ "road.ts": envOf("Road"), "half.ts": HALF, "other.ts": "" })).toBe(here);
    expect(digest({ "road.ts": envOf("Road"), "half.ts": "export const half = 0.75;" })).not.toBe(here);
  });

  test.each([
    ["a tag of a built-in env", envOf("Bandit"), "has the tag of a built-in env; choose another tag"],
    ["no env", "export const a = 1;", "its default export is no env; write `export default defineEnv({ … })`"],
    ["an error, with file and line", "\n\nthrow new Error('out of luck');", "out of luck (FOLDER/bad.ts:3:"],
    ["a mistake of syntax, with file and line", "\nconst = 1;", "bad.ts:2:"],
  ])("refuses a module with %s", async (_, text, message) => {
    const folder = project({ "bad.ts": text, "half.ts": HALF });
    await expect(importEnvs("./bad.ts", folder)).rejects.toThrow(message.replace("FOLDER", folder));
  });

  test("says which module is missing", async () => {
    const folder = project({});
    await expect(importEnvs("no-such-package", folder)).rejects.toThrow(
      `no env module no-such-package was found from ${folder}; a path starts with "./"`,
    );
  });
});

test("an error of an env names its file and line", async () => {
  const folder = project({ "hole.ts": envOf("Hole", "throw new Error('fell');"), "half.ts": HALF });
  await importEnvs("./hole.ts", folder);
  const game = openLocal(envTag("Hole"), { layout: 1, dynamics: 0 });
  const act = () => within("env", "Hole#1 turn 0", () => game.kind === "discrete" && game.act(0));
  expect(act).toThrow(`Hole#1 turn 0: Error: fell (${join(folder, "hole.ts")}:5:`);
});

test("the random player of a game that takes any text has to be defined", () => {
  const game: LanguageGame = {
    kind: "language",
    render: () => "say",
    act: () => ({ reward: 0, done: true, effective: true, valid: true, success: false }),
  };
  const source = defineEnv({ tag: "Talk", instruction: "Speak.", actionsMax: 1, open: () => game });
  const tag = source.make({}, "strict");
  expect(() => tag.random(game, 1, () => 0)).toThrow(
    "the games of Talk have no list of actions, so its definition needs a player `random`",
  );
});

describe("the modules of a run's config", () => {
  const configOf = (modules: Record<string, string>) => ({ env: { modules } }) as never;

  test("are imported where the parent made the config, and refused if they have changed", async () => {
    const folder = project({ "lane.ts": envOf("Lane"), "half.ts": HALF });
    const path = join(folder, "lane.ts");
    await importModules(configOf({ [path]: digestOf(path) }));
    expect(envTag("Lane").tag).toBe("Lane");
    await expect(importModules(configOf({ [path]: "0".repeat(64) }))).rejects.toThrow(`${path} has changed`);
  });

  test("are also those of the env whose games an env with a reward of its own plays", async () => {
    const paid = `import { withReward } from "bunraku/env";\nexport default withReward("PaidRoute", "Route", () => 1);`;
    const folder = project({ "route.ts": envOf("Route"), "half.ts": HALF, "paid.ts": paid });
    for (const file of ["./route.ts", "./paid.ts"]) await importEnvs(file, folder);
    const { env } = aConfig({ env: { tag: "PaidRoute" } });
    const [base, own] = [join(folder, "route.ts"), join(folder, "paid.ts")];
    expect(env.modules).toEqual({ [base]: digestOf(base), [own]: digestOf(own) });
  });

  test("that come from elsewhere are found by their digest, and never imported", async () => {
    const folder = project({ "path.ts": envOf("Path"), "half.ts": HALF });
    const { path, digest } = await importEnvs("./path.ts", folder);
    expect(withLocalModules(configOf({ "/elsewhere/path.ts": digest }))).toEqual(configOf({ [path]: digest }));
    const unknown = project({ "alien.ts": `globalThis.alien = 1;${envOf("Alien")}`, "half.ts": HALF });
    const modules = { [join(unknown, "alien.ts")]: digestOf(join(unknown, "alien.ts")) };
    expect(() => withLocalModules(configOf(modules))).toThrow(
      "Restore that version of the file, and name it in the bunraku.config.ts of this folder, or, in a program, in the option `envs`",
    );
    expect(globalThis).not.toHaveProperty("alien");
  });
});

describe("a project", () => {
  test("names modules, presets and the folder of runs", async () => {
    const config = `
import { defineConfig } from "bunraku/config";
export default defineConfig({ envs: ["./alley.ts"], run: { seed: 7 }, presets: { long: { learner: { updates: 9 } } } });`;
    const folder = project({ "alley.ts": envOf("Alley"), "half.ts": HALF, "bunraku.config.ts": config });
    expect(await loadProject(folder)).toEqual({
      envs: ["./alley.ts"],
      run: { seed: 7 },
      presets: { long: { learner: { updates: 9 } } },
      runsFolder: "runs",
    });
    expect(envTag("Alley").tag).toBe("Alley");
  });

  test("with an unknown key is refused in one line", async () => {
    const folder = project({ "bunraku.config.ts": "export default { env: [] };" });
    await expect(loadProject(folder)).rejects.toThrow('bunraku.config.ts: its default export: Unrecognized key: "env"');
  });
});

test("the page's bundle has the module, and names what a browser lacks", async () => {
  const reads = `import { readFileSync } from "node:fs";${envOf("Reader", "readFileSync('/etc/hosts');")}`;
  const folder = project({ "reader.ts": reads, "half.ts": HALF });
  const module = await importEnvs("./reader.ts", folder);
  const file = join(folder, "replay-code.js");
  writeFileSync(file, await bundleReplayCode([module]));
  const { replay } = (await import(file)) as typeof import("../../../actors/dashboard/client/replay-code.ts");
  const ticket = { env: "Reader", layoutSeed: 1, dynamicsSeed: 0 };
  const turns = [{ observation: "a road", actions: ["Go"], reward: 0 }];
  const record = { turns, finalObservation: "" };
  const play = { compat: "strict" as const, envs: [] };
  expect(() => replay(ticket, record, play)).toThrow("this env needs node:fs, which browsers do not have");
});
