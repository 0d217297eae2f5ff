import { expect, test } from "bun:test";
import { linesOf } from "../../../actors/process/lines.ts";

/** @param chunks  texts or bytes, each of which arrives by itself */
async function linesIn(chunks: readonly (string | number[])[], lineMax?: number): Promise<string[]> {
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) {
        controller.enqueue(typeof chunk === "string" ? new TextEncoder().encode(chunk) : Uint8Array.from(chunk));
      }
      controller.close();
    },
  });
  const lines: string[] = [];
  for await (const line of linesOf(stream, lineMax)) lines.push(line);
  return lines;
}

test("lines are whole wherever the stream cuts them, and the last one needs no line break", async () => {
  expect(await linesIn(["a\nb", "c\n\nd", [0xc3], [0xa9]])).toEqual(["a", "bc", "", "dé"]);
  expect(await linesIn([])).toEqual([]);
  expect(await linesIn(["abcdef", "g\nh"], 4)).toEqual(["abcdef", "g", "h"]);
});

test("a last character that was cut is shown as a replacement character", async () => {
  expect(await linesIn(["the end: ", [0xe2, 0x82]])).toEqual(["the end: \ufffd"]);
  expect(await linesIn(["whole\n", [0xe2]])).toEqual(["whole", "\ufffd"]);
});
