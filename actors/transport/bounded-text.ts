/**
 * Reads the body of an answer from a server that is not trusted to be brief.
 *
 * @throws the error of `tooLarge`, as soon as more than `bytesMax` bytes have come
 */
export async function boundedText(response: Response, bytesMax: number, tooLarge: () => Error): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > bytesMax) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
