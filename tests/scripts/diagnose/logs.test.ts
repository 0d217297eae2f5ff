import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, renameSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { EventFiles } from "../../../actors/record/tensorboard.ts";
import { readLog } from "../../../scripts/diagnose/logs.ts";
import { temporaryFolder } from "../temporary.ts";

const folder = temporaryFolder();

function read(name: string, text: string) {
  writeFileSync(join(folder, name), text);
  const { steps, notFinite } = readLog(join(folder, name));
  return { steps: [...steps].map(([step, values]) => [step, Object.fromEntries(values)]), notFinite };
}

test("JSON Lines: blank lines are no rows, steps ascend, and values that are not finite are counted and left out", () => {
  const text = '{"step": 2, "a": -Infinity, "b": 1}\n  \n{"step": 1, "a": NaN, "b": "inf", "c": ".5", "d": "-2e1"}\n';
  expect(read("a.jsonl", text)).toEqual({
    steps: [
      [1, { c: 0.5, d: -20 }],
      [2, { b: 1 }],
    ],
    notFinite: 3,
  });
});

test("of a repeated step the last finite value counts", () => {
  const text = '{"step": 1, "a": 1, "b": 1}\n{"step": 1, "a": 2, "b": NaN, "c": 3}\n';
  expect(read("again.jsonl", text).steps).toEqual([[1, { a: 2, b: 1, c: 3 }]]);
});

test.each(['""', '" "', "null"])("a row whose step is %s is refused: 0 would be a step", (step) => {
  expect(() => read("blank.jsonl", `{"step": 1, "a": 1}\n{"step": ${step}, "a": 1}\n`)).toThrow(
    /its step .* is not a number/,
  );
});

test("CSV: quotes are doubled, only a name without spaces loses its run, and a short row is whole before a line break", () => {
  const text = 'step,"run - a ""b""","run - loss/x","my run - two words"\n1,2,3,4\n2,5\n';
  expect(read("a.csv", text).steps).toEqual([
    [1, { 'run - a "b"': 2, "loss/x": 3, "my run - two words": 4 }],
    [2, { 'run - a "b"': 5 }],
  ]);
});

test("CSV: a quote inside a field without quotes is a character, as Python reads it, and hides no row", () => {
  const text = 'step,size,loss\n1,5",0.5\n2,6",0.25\n';
  expect(read("inches.csv", text).steps).toEqual([
    [1, { loss: 0.5 }],
    [2, { loss: 0.25 }],
  ]);
});

test("several event files of a folder are read in the order of their names, so a later one counts", () => {
  const board = join(folder, "board");
  mkdirSync(board);
  for (const [value, name] of [
    [0.25, "events.out.tfevents.2"],
    [0.5, "events.out.tfevents.1"],
  ] as const) {
    // biome-ignore format: a row a file
    const events = new EventFiles(join(folder, `made-${value}`), 1000);
    events.add({ name: "train/success", actor: "learner", step: 3, value, atMs: 1000 });
    events.flush();
    const [made] = readdirSync(join(folder, `made-${value}`));
    renameSync(join(folder, `made-${value}`, made!), join(board, name));
  }
  expect([...readLog(board).steps].map(([step, values]) => [step, ...values])).toEqual([[3, ["train/success", 0.25]]]);
});

test("a log that is too large is refused before it is read", () => {
  const file = join(folder, "large.csv");
  writeFileSync(file, "");
  truncateSync(file, 512 * 2 ** 20 + 1);
  expect(() => readLog(file)).toThrow("it has 536870913 bytes; the limit is 536870912");
});
