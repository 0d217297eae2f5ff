import { expect, test } from "bun:test";
import { boundTo, closeReason, parseAddress } from "../../../actors/transport/socket-wire.ts";

test("a reason that does not fit a close frame ends with an ellipsis", () => {
  expect(closeReason("é".repeat(61))).toBe("é".repeat(61));
  expect(closeReason("é".repeat(62))).toBe(`${"é".repeat(60)}…`);
  expect(closeReason(`a${"é".repeat(62)}`)).toBe(`a${"é".repeat(59)}…`);
});

test.each([
  ["ws://127.0.0.1:7000", "127.0.0.1", 7000],
  ["ws://[::1]:0", "::1", 0],
  ["ws://127.0.0.1:80", "127.0.0.1", 80],
  ["wss://0.0.0.0:443", "0.0.0.0", 443],
])("%s is served at its own port, also if this port is the default of the scheme", (address, hostname, port) => {
  expect(boundTo(parseAddress(address))).toEqual({ hostname, port });
});
