/** Layers of files, and what a higher layer does to the lists of a lower layer. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { merge, oneValue, parseLayer, readLayer } from "../../../actors/config/layers.ts";
import { ConfigError } from "../../../actors/errors.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const lower = { source: "file", values: { stages: [{ steps: 1 }, { steps: 2 }] } };

describe("a list", () => {
  test("is changed in one item by its number", () => {
    expect(merge([lower, oneValue("flag", "stages.1.steps", 5)])).toEqual({ stages: [{ steps: 1 }, { steps: 5 }] });
    expect(lower.values.stages[1]).toEqual({ steps: 2 });
  });

  test("has no item behind its end", () => {
    expect(() => merge([lower, oneValue("flag", "stages.2.steps", 5)])).toThrow(
      new ConfigError("flag: no item 2 in a list of 2; items are numbered from 0"),
    );
  });

  test("is replaced by a mapping of names, which the schema then refuses", () => {
    expect(merge([lower, oneValue("flag", "stages.first", 5)])).toEqual({ stages: { first: 5 } });
  });

  test("is replaced by another list", () => {
    expect(merge([lower, { source: "above", values: { stages: [{ epochs: 3 }] } }])).toEqual({
      stages: [{ epochs: 3 }],
    });
  });
});

describe("a file", () => {
  test.each([
    ["seed: 1\n---\nactors: workers", 2],
    ["seed: 1\n---\n", 2],
    ["%YAML 1.2\n---\nseed: 1\n--- # two\nseed: 2\n---\nseed: 3", 3],
  ])("%j has too many documents", (text, count) => {
    const message = `mine.yaml: has ${count} documents (a line --- begins a new document); keep one`;
    expect(() => parseLayer(text, "mine.yaml")).toThrow(new ConfigError(message));
  });

  test.each(["# mine\n---\nseed: 1\n", "seed: 1\n...\n"])("%j has one document", (text) => {
    expect(parseLayer(text, "mine.yaml").values).toEqual({ seed: 1 });
  });

  test("may have such a line in a text", () => {
    expect(parseLayer("a: |\n  ---\n  b\n", "mine.yaml").values).toEqual({ a: "---\nb\n" });
  });

  test("may have a comment before a text whose lines look like a key that is set twice", () => {
    expect(parseLayer("a: |- # a text\n  b: 1\n  b: 2\n", "mine.yaml").values).toEqual({ a: "b: 1\nb: 2" });
    // A comment that ends like the beginning of a text begins no text.
    expect(() => parseLayer("a: # this ->\n  b: 1\n  b: 2\n", "mine.yaml")).toThrow("b is set twice");
  });
});

test("a pipe is read to its end, which comes in several pieces", () => {
  const folder = temporaryFolder();
  const [file, pipe] = [join(folder, "mine.yaml"), join(folder, "pipe")];
  // More than a pipe holds.
  writeFileSync(file, `seed: 7\n# ${"x".repeat(200_000)}\nactors: workers\n`);
  Bun.spawnSync(["mkfifo", pipe]);
  Bun.spawn(["sh", "-c", 'cat "$0" > "$1"', file, pipe]);
  expect(readLayer(pipe).values).toEqual({ seed: 7, actors: "workers" });
});
