/** The programs of docs/program.md. Each program runs as it stands, in a process of its own, on a small task. */
import { beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { childEnv } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const root = join(import.meta.dir, "../..");
const page = readFileSync(join(root, "docs/program.md"), "utf8");
const programs = [...page.matchAll(/^## (.+)\n(?:(?!^## )[\s\S])*?^```ts\n([\s\S]+?)^```/gm)].map(
  ([, title, code]) => [title!, code!] as const,
);

/** A project with the library in its node_modules, whose default settings are those of a tiny run. */
const project = temporaryFolder();
beforeAll(() => {
  const installed = join(project, "node_modules/bunraku");
  mkdirSync(installed, { recursive: true });
  writeFileSync(join(installed, "package.json"), '{"name":"bunraku","type":"module","exports":"./index.ts"}');
  const tiny = {
    rollout: { groups: 4, groupSize: 4 },
    sampler: { count: 1, slots: 8 },
    model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
    warmStart: {
      boards: 20,
      stages: [{ name: "learn", babble: 0.5, noise: 0, steps: 60, batch: 16, learningRate: 1e-2, warmUpSteps: 10 }],
    },
    learner: { updates: 3, filter: { strategy: "all" } },
    validate: { episodes: 16, everyUpdates: 2 },
    engine: { threads: 1 },
  };
  // The first program, which has no options, has its actors in workers, as by default. The program that stops its run has long updates: a
  // run of short updates can end before the program stops it.
  writeFileSync(
    join(installed, "index.ts"),
    `import { train as start, type Settings, type TrainOptions } from ${JSON.stringify(join(root, "library/index.ts"))};
     import { merge } from ${JSON.stringify(join(root, "actors/config/layers.ts"))};
     export * from ${JSON.stringify(join(root, "library/index.ts"))};
     const tiny = ${JSON.stringify(tiny)};
     const oneThread = { ...tiny, actors: "one-thread" };
     const stoppable = { ...oneThread, rollout: { groups: 8, groupSize: 16 }, sampler: { count: 1, slots: 64 } };
     export const train = (settings: Settings, options?: TrainOptions) => start(options?.resume ? settings : merge([
       { source: "page", values: settings as never },
       { source: "tiny", values: options === undefined ? tiny : options.folder === undefined ? oneThread : stoppable },
     ]) as Settings, options);`,
  );
  symlinkSync(join(root, "tsconfig.json"), join(project, "tsconfig.json"));
});

test("the page has six programs", () => expect(programs).toHaveLength(6));

/** What each prints, in the order of the page. The third to fifth use the run that the second leaves. */
const printed: readonly RegExp[] = [
  /^http:\/\/127\.0\.0\.1:\d+\S*\n1 [\d.]+\n2 [\d.]+\n3 [\d.]+\nsuccess after training: [\d.]+\n$/,
  /^\S+ Bandit (true|false) <\w+>[\s\S]*\n\S*runs\/mine\/checkpoints\/u\d+\nenough\n$/,
  /^\d\n(\d\n)*$/,
  /^<(think|answer)>[\s\S]*\n(true|false) \d+\nhttp:\/\/\S+\/v1\n$/,
  /^[\d.]+ [\d.]+\n$/,
  /^[\d.]+\n[\d.]+\n$/,
];

test.each(programs.map(([title, code], i) => [title, code, printed[i]!] as const))(
  "%s",
  async (title, code, expected) => {
    const file = join(project, `${title.toLowerCase().replaceAll(/\W+/g, "-")}.ts`);
    writeFileSync(file, code);
    const program = Bun.spawn([process.execPath, file], {
      cwd: project,
      env: childEnv(),
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, err] = await Promise.all([program.stdout.text(), program.stderr.text()]);
    expect({ code: await program.exited, err, out }).toEqual({
      code: 0,
      err: "",
      out: expect.stringMatching(expected),
    });
  },
  300_000,
);
