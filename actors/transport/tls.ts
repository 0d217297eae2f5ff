/** TLS certificates of the two ends of a connection, as PEM texts. */
import { readFileSync } from "node:fs";
import { messageOf } from "../errors.ts";

/** Certificates of the connecting end. */
export interface ClientTls {
  /** CA certificate; left out: the system's. */
  readonly ca?: string;
  /** Client certificate and key; both or neither. */
  readonly cert?: string;
  readonly key?: string;
}

/** Certificates of the listening end. */
export interface ServerTls {
  readonly cert: string;
  readonly key: string;
  /** CA that must have signed a client's certificate; null: clients need none. */
  readonly clientCa: string | null;
}

/** @param what  name of the setting, for the message. @throws {Error} in one line, if the file cannot be read or is no PEM text */
export function readPem(file: string, what: string): string {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`cannot read ${what}: ${messageOf(error)}`);
  }
  if (!text.includes("-----BEGIN ")) throw new Error(`cannot use ${what}: ${file} is not in PEM format`);
  return text;
}

/** The `tls` option of `Bun.serve`. */
export const serverOptions = ({ cert, key, clientCa }: ServerTls) => ({
  cert,
  key,
  ...(clientCa === null ? {} : { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
});
