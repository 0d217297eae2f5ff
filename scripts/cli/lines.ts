/** The lines of a program's output, as they come. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) {
    const lines = `${rest}${decoder.decode(chunk, { stream: true })}`.split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}
