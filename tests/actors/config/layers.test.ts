/** What a higher layer does to the lists of a lower one. */
import { describe, expect, test } from "bun:test";
import { ConfigError } from "../../../actors/config/error.ts";
import { merge, oneValue } from "../../../actors/config/layers.ts";

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
