/**
 * The built-in policy's tokenizer: a table of literals, longest match first, and one token for each of the 256 bytes.
 *
 * It knows no chat layout (chat.ts) and no env. The table has the most frequent words of the shipped envs, so each action and cell of
 * Sokoban and FrozenLake, and each arm of the bandit, is one token.
 *
 * - `decode(encode(text)) === text` for every string, also with lone surrogates (their bytes are WTF-8).
 * - Text never encodes to a special token: `<|im_end|>` in an observation becomes ten tokens, one for each byte, and cannot end a turn.
 * - A checkpoint records the digest of this table.
 */
import { createHash } from "node:crypto";

export type Special = "<|pad|>" | "<|im_start|>" | "<|im_end|>";
export const SPECIALS: readonly Special[] = ["<|pad|>", "<|im_start|>", "<|im_end|>"];
const BYTES_START = SPECIALS.length;
const LITERALS_START = BYTES_START + 256;

/** Embeddings are padded to a multiple of this, for faster matrix kernels. */
const SIZE_MULTIPLE = 64;

/** Stands for an id without a token and for bytes that are not UTF-8. */
const REPLACEMENT = "\uFFFD";

const withSpace = (words: string): string[] => words.split(" ").flatMap((word) => [word, ` ${word}`]);

/** The order is part of the format: a change makes older checkpoints unreadable and changes the digest. */
const LITERALS: readonly string[] = [
  "<think>",
  "</think>",
  "<answer>",
  "</answer>",
  " || ",
  "||",
  ...withSpace("Up Down Left Right push pull go try"),
  "system",
  "user",
  "assistant",
  "√",
  " left ",
  " actions",
  " points",
  "Reward:",
  "Turn",
  "State:",
  " up",
  " down",
  " left",
  " right",
  " box",
  " target",
  " player",
  " hole",
  " goal",
  // Arms of RAGEN's bandit: its default pair, then the train and the test pairs.
  ...withSpace("Phoenix Dragon"),
  ...withSpace(
    "Teacher Trader Nurse StartupFounder Librarian Investor Accountant StockBroker Engineer RealEstateAgent",
  ),
  ...withSpace("Pharmacist Musician Clerk Freelancer Technician Youtuber Planner Artist Postman Pilot"),
  ...withSpace("Banker VentureCapitalist Gardener Cryptominer"),
  ...withSpace("Receptionist Explorer Archivist Filmmaker Bookkeeper Consultant SocialWorker Photographer"),
  ...withSpace("Mechanic GameDesigner Secretary Entrepreneur Cashier DataScientist CivilServant StartupAccelerator"),
];

export class Tokenizer {
  /** V: ids are 0 to size - 1. */
  readonly size = Math.ceil((LITERALS_START + LITERALS.length) / SIZE_MULTIPLE) * SIZE_MULTIPLE;
  /** sha256 (hex) of the table. */
  readonly digest = createHash("sha256")
    .update(JSON.stringify([SPECIALS, "bytes", LITERALS]))
    .digest("hex");
  /** In the order of their ids. The ids of the literals come after the ids of the bytes. */
  readonly literals = LITERALS;
  /** Literals by their first character, longest first. */
  readonly #byFirst = Map.groupBy(
    LITERALS.map((text, i) => ({ text, id: LITERALS_START + i })).sort((a, b) => b.text.length - a.text.length),
    ({ text }) => text[0]!,
  );

  id(special: Special): number {
    return SPECIALS.indexOf(special);
  }

  encode(text: string): number[] {
    const ids: number[] = [];
    let at = 0;
    while (at < text.length) {
      const literal = this.#byFirst.get(text[at]!)?.find((one) => text.startsWith(one.text, at));
      if (literal === undefined) {
        const codePoint = text.codePointAt(at)!;
        if (codePoint < 0x80) ids.push(BYTES_START + codePoint);
        else for (const byte of wtf8(codePoint)) ids.push(BYTES_START + byte);
        at += codePoint > 0xffff ? 2 : 1;
      } else {
        ids.push(literal.id);
        at += literal.text.length;
      }
    }
    return ids;
  }

  /**
   * Special tokens become their names. Ids in the padding of the vocabulary, and bytes that are not UTF-8, become U+FFFD; a
   * policy may sample both.
   *
   * @throws {RangeError} if an id is not in 0 to size - 1.
   */
  decode(ids: Iterable<number>): string {
    let text = "";
    let bytes: number[] = [];
    for (const id of ids) {
      if (!Number.isInteger(id) || id < 0 || id >= this.size) {
        throw new RangeError(`cannot decode token ${id}: ids are 0 to ${this.size - 1}`);
      }
      if (id >= BYTES_START && id < LITERALS_START) {
        const byte = id - BYTES_START;
        if (byte < 0x80 && bytes.length === 0) text += String.fromCharCode(byte);
        else bytes.push(byte);
        continue;
      }
      if (bytes.length > 0) {
        text += fromWtf8(bytes);
        bytes = [];
      }
      text += SPECIALS[id] ?? this.literals[id - LITERALS_START] ?? REPLACEMENT;
    }
    return text + fromWtf8(bytes);
  }
}

const toUtf8 = new TextEncoder();
const fromUtf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** UTF-8; a lone surrogate gets the three bytes that it would have as a character. */
function wtf8(codePoint: number): Uint8Array {
  const surrogate = codePoint >= 0xd800 && codePoint <= 0xdfff;
  if (!surrogate) return toUtf8.encode(String.fromCodePoint(codePoint));
  return Uint8Array.of(0xed, 0x80 | ((codePoint >> 6) & 0x3f), 0x80 | (codePoint & 0x3f));
}

function fromWtf8(bytes: readonly number[]): string {
  let text = "";
  let start = 0;
  for (let i = 0; i + 2 < bytes.length; i++) {
    const second = bytes[i + 1]!;
    const third = bytes[i + 2]!;
    if (bytes[i] !== 0xed || second < 0xa0 || second > 0xbf || third < 0x80 || third > 0xbf) continue;
    text += fromUtf8.decode(Uint8Array.from(bytes.slice(start, i)));
    text += String.fromCharCode(0xd000 | ((second & 0x3f) << 6) | (third & 0x3f));
    start = i + 3;
  }
  return text + fromUtf8.decode(Uint8Array.from(bytes.slice(start)));
}
