/** The token that clients of a command must send. */
import { existsSync, readFileSync } from "node:fs";
import { UsageError } from "./options.ts";

const TOKEN_LENGTH_MIN = 16;

/** The token in the file of --token-file; null if the flag is not given. */
export function tokenIn(file: string | undefined): string | null {
  if (file === undefined) return null;
  if (!existsSync(file)) throw new UsageError(`--token-file: there is no file ${file}`);
  const token = readFileSync(file, "utf8").trim();
  if (token.length >= TOKEN_LENGTH_MIN) return token;
  throw new UsageError(
    `--token-file: the token in ${file} must have at least ${TOKEN_LENGTH_MIN} characters, it has ${token.length}`,
  );
}
