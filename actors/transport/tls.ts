/** Certificates as the ends of a connection take them. PEM texts; reads them from files, makes none. */
import { readFileSync } from "node:fs";
import { describeError } from "../errors.ts";

/** Of who connects. */
export interface ClientTls {
  /** Whom to trust; left out: whom this machine trusts. */
  readonly ca?: string;
  /** Who we are, where the other end asks; both or none. */
  readonly cert?: string;
  readonly key?: string;
}

/** Of who listens. */
export interface ServerTls {
  readonly cert: string;
  readonly key: string;
  /** Only clients with a certificate of this authority get in; null: any client. */
  readonly clientCa: string | null;
}

/** @param what  the setting that names the file, for the message. @throws {Error} in one line, if it is no PEM text */
export function readPem(file: string, what: string): string {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`cannot read ${what}: ${describeError(error).replace(/^Error: /, "")}`);
  }
  if (!text.includes("-----BEGIN ")) throw new Error(`cannot use ${what}: ${file} is not in PEM format`);
  return text;
}

/** What `Bun.serve` takes. */
export const serverOptions = ({ cert, key, clientCa }: ServerTls) => ({
  cert,
  key,
  ...(clientCa === null ? {} : { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
});
