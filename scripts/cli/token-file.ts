/** The token that clients of a command must send. */
import { readFileSync } from "node:fs";
import { messageOf } from "../../actors/errors.ts";
import { UsageError } from "./options.ts";

const TOKEN_LENGTH_MIN = 16;

/** The token in the file of --token-file; null if the flag is not given. */
export function tokenIn(file: string | undefined): string | null {
  if (file === undefined) return null;
  let token: string;
  try {
    token = readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new UsageError(`cannot read --token-file ${file}: ${messageOf(error)}; name a file with the token`);
  }
  if (token.length >= TOKEN_LENGTH_MIN) return token;
  throw new UsageError(
    `--token-file: the token in ${file} must have at least ${TOKEN_LENGTH_MIN} characters, it has ${token.length}`,
  );
}
