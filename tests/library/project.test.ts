/** bunraku.config.ts, and paths of modules in a command's arguments. */
import { beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadProject, NO_PROJECT, withTagsForPaths } from "../../library/project.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const folder = temporaryFolder();

beforeAll(() => {
  const defined = (tag: string) => `defineEnv({ tag: "${tag}", instruction: "Wait.", actionsMax: 3, open() {} })`;
  const module = (...tags: string[]) =>
    `import { defineEnv } from "${join(import.meta.dir, "../../library/env.ts")}"; export default [${tags.map(defined)}];`;
  writeFileSync(join(folder, "one.ts"), module("ProjectLane"));
  writeFileSync(join(folder, "two.ts"), module("ProjectRoad", "ProjectPath"));
});

test.each([
  [
    "eval",
    ["--env", "./one.ts,Bandit", "--episodes", "./one.ts"],
    ["--env", "ProjectLane,Bandit", "--episodes", "./one.ts"],
  ],
  ["eval", ["--env=Bandit,./one.ts"], ["--env=Bandit,ProjectLane"]],
  ["play", ["./one.ts", "--seed", "3"], ["ProjectLane", "--seed", "3"]],
  ["eval", ["Bandit", "./one.ts"], ["Bandit", "./one.ts"]],
])("%s %p names envs by their tags", async (command, args, changed) => {
  expect(await withTagsForPaths(command, args, folder)).toEqual(changed);
});

test("a module of several envs cannot stand for one", async () => {
  await expect(withTagsForPaths("eval", ["--env", "./two.ts"], folder)).rejects.toThrow(
    "./two.ts defines several envs, ProjectRoad, ProjectPath; name the module in bunraku.config.ts, and one of its tags here",
  );
});

test("a folder without bunraku.config.ts has no project, and a wrong one is named", async () => {
  const project = temporaryFolder();
  expect(await loadProject(project)).toBe(NO_PROJECT);
  writeFileSync(join(project, "bunraku.config.ts"), "export default { env: ['./street.ts'] };");
  await expect(loadProject(project)).rejects.toThrow(/^bunraku\.config\.ts: .*"env"/);
});
