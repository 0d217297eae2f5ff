import { expect, test } from "bun:test";
import { closeReason } from "../../../actors/transport/socket-wire.ts";

test("a reason that does not fit a close frame ends with an ellipsis", () => {
  expect(closeReason("é".repeat(61))).toBe("é".repeat(61));
  expect(closeReason("é".repeat(62))).toBe(`${"é".repeat(60)}…`);
  expect(closeReason(`a${"é".repeat(62)}`)).toBe(`a${"é".repeat(59)}…`);
});
