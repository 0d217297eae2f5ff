/** What commands that listen share: where, and the secret that others need. */
import { existsSync } from "node:fs";
import { UsageError } from "./options.ts";

/** Shortest secret. */
const TOKEN_MIN = 16;

export function portOf(text: string | undefined, usual: number): number {
  const port = text === undefined ? usual : Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new UsageError(`--port takes a number from 0 to 65535, got "${text}"`);
}

/** @param file  that holds the secret; null is returned if there is none */
export async function secretOf(file: string | undefined): Promise<string | null> {
  if (file === undefined) return null;
  if (!existsSync(file)) throw new UsageError(`--token-file: there is no ${file}`);
  const token = (await Bun.file(file).text()).trim();
  if (token.length >= TOKEN_MIN) return token;
  throw new UsageError(
    `--token-file: the secret in ${file} must have at least ${TOKEN_MIN} letters, it has ${token.length}`,
  );
}
