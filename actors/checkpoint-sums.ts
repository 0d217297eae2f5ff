/** The list of digests that makes files one whole: SHA256SUMS, in the form that `sha256sum --check` reads. Knows no disk. */

const SUMS = "SHA256SUMS";
const LINE = /^([0-9a-f]{64}) {2}([^/\n]+)$/;

const digestOf = (bytes: Uint8Array): string => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

/** The same files, and the list. */
export function writeSums(files: ReadonlyMap<string, Uint8Array>): ReadonlyMap<string, Uint8Array> {
  const lines = [...files].map(([name, bytes]) => `${digestOf(bytes)}  ${name}\n`);
  return new Map([...files, [SUMS, new TextEncoder().encode(lines.join(""))]]);
}

/** @throws {Error} naming the first file that is missing, changed, or not of the list. */
export function checkSums(files: ReadonlyMap<string, Uint8Array>): void {
  const list = files.get(SUMS);
  if (list === undefined) throw new Error(`${SUMS} is missing`);
  const text = new TextDecoder().decode(list);
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new Error(`${SUMS} was cut`);
  const known = new Set([SUMS]);
  for (const line of lines) {
    const [, digest, name] = LINE.exec(line) ?? [];
    if (digest === undefined || name === undefined)
      throw new Error(`${SUMS} is corrupt: ${JSON.stringify(line.slice(0, 100))}`);
    const bytes = files.get(name);
    if (bytes === undefined) throw new Error(`${name} is missing`);
    const found = digestOf(bytes);
    if (found !== digest) {
      throw new Error(`${name} is corrupt: its ${bytes.length} bytes have sha256 ${found}, and ${digest} was saved`);
    }
    known.add(name);
  }
  for (const name of files.keys()) if (!known.has(name)) throw new Error(`${name} is not in ${SUMS}`);
}
