/** How steps choose the slots that they compute. */
import { expect, test } from "bun:test";
import { slotsOfStep } from "../../../model/decode/batches.ts";

test.each([
  ["has no padding if the number of rows fits", [1, 3, 4, 6], [9, 9, 9, 9, 9, 9, 9, 9], [1, 3, 4, 6]],
  ["is padded with empty slots first", [2, 7], [5, 0, 9, 8, 7, 0, 6, 4], [2, 7, 1, 5]],
  ["is padded with used slots if too few are empty", [2], [5, 0, 9, 8, 7, 6], [2, 1, 0, 3]],
])("a step of slots %s", (_, fed, lengths, slots) => {
  const isFed = Uint8Array.from(lengths, (_, slot) => (fed.includes(slot) ? 1 : 0));
  expect([...slotsOfStep(isFed, Int32Array.from(lengths))]).toEqual(slots);
});
