/**
 * Reads the body of an HTTP response from a server that may send too many bytes.
 *
 * @throws the error that `tooLarge` returns, as soon as more than `bytesMax` bytes have arrived
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
