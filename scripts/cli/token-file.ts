/** Tokens in files: the token that clients of a command must send, and the token of the run that a guest joins. */
import { readAtMost } from "../../actors/config/layers.ts";
import { messageOf } from "../../actors/errors.ts";
import { fitsHeader } from "../../actors/transport/address.ts";
import { UsageError } from "./options.ts";

const TOKEN_LENGTH_MIN = 16;
const FILE_BYTES_MAX = 4096;

/** The token in the file of --token-file; null if the flag is not given. */
export function tokenIn(file: string | undefined): string | null {
  if (file === undefined) return null;
  const token = readToken(file);
  if (token.length >= TOKEN_LENGTH_MIN) return token;
  throw new UsageError(
    `--token-file: the token in ${file} must have at least ${TOKEN_LENGTH_MIN} characters; it has ${token.length}`,
  );
}

/** The file's text without spaces around it. The text may be empty. @throws {UsageError} if the file cannot be read, or HTTP cannot send the text */
export function readToken(file: string): string {
  let text: string | null;
  try {
    text = readAtMost(file, FILE_BYTES_MAX);
  } catch (error) {
    throw new UsageError(`cannot read --token-file ${file}: ${messageOf(error)}; name a file with the token`);
  }
  if (text === null)
    throw new UsageError(
      `--token-file ${file} has more than the ${FILE_BYTES_MAX} bytes that a token may have; name a file with the token`,
    );
  return sendable(text, `--token-file ${file}`);
}

/** The token without spaces around it. @param source  the token's origin, for the error. @throws {UsageError} if HTTP cannot send it */
export function sendable(text: string, source: string): string {
  const token = text.trim();
  if (token === "" || fitsHeader(token)) return token;
  throw new UsageError(
    `${source}: the token has a line break or characters beyond ASCII, which HTTP cannot send; use one line of ASCII letters, digits and punctuation`,
  );
}
