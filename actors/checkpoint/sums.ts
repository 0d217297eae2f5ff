/** SHA256SUMS, the list of digests of a checkpoint's files, in the format of `sha256sum --check`. Knows no disk. */

const SUMS = "SHA256SUMS";
const LINE = /^([0-9a-f]{64}) {2}([^/\n]+)$/;

/** Bytes hashed at a time. They take about 10 ms; then the event loop may answer. */
const PIECE_BYTES = 2 ** 24;

function* piecesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

/** Collects the digests of files while they are written. */
export class Sums {
  readonly #lines: string[] = [];

  /** Yields the parts in small pieces and hashes each. The file is listed once all pieces are taken. */
  *count(name: string, parts: Iterable<Uint8Array>): Generator<Uint8Array> {
    const hasher = new Bun.CryptoHasher("sha256");
    for (const part of parts) {
      for (const piece of piecesOf(part)) {
        hasher.update(piece);
        yield piece;
      }
    }
    this.#lines.push(`${hasher.digest("hex")}  ${name}\n`);
  }

  /** Name and bytes of the list. */
  list(): readonly [name: string, bytes: Uint8Array] {
    return [SUMS, new TextEncoder().encode(this.#lines.join(""))];
  }
}

async function digestOf(bytes: Uint8Array): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  for (const piece of piecesOf(bytes)) {
    hasher.update(piece);
    if (piece.length === PIECE_BYTES) await new Promise((next) => setImmediate(next));
  }
  return hasher.digest("hex");
}

/** @throws {Error} naming the first file that is missing, changed, or not in the list */
export async function checkSums(files: ReadonlyMap<string, Uint8Array>): Promise<void> {
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
    const found = await digestOf(bytes);
    if (found !== digest) {
      throw new Error(`${name} is corrupt: its ${bytes.length} bytes have sha256 ${found}, and ${digest} was saved`);
    }
    known.add(name);
  }
  for (const name of files.keys()) if (!known.has(name)) throw new Error(`${name} is not in ${SUMS}`);
}
