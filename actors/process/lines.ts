/** Splits a stream of text, such as a program's output, into lines, and yields each line as it arrives. */

/** @param lineMax  if an unfinished line has more characters, the function yields them at once; the rest of the line becomes the next line */
export async function* linesOf(
  stream: ReadableStream<Uint8Array>,
  lineMax = Number.POSITIVE_INFINITY,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of stream) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    yield* lines;
    if (rest.length > lineMax) {
      yield rest;
      rest = "";
    }
  }
  // The stream may end within a character.
  rest += decoder.decode();
  if (rest !== "") yield rest;
}
