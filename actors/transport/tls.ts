/** TLS certificates of the two ends of a connection, as PEM texts. */
import { readAtMost } from "../config/layer-file.ts";
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

/** The certificates of all known authorities have a quarter of it. */
const PEM_BYTES_MAX = 2 ** 20;

/** @param what  name of the setting, for the message. @throws {Error} in one line, if the file cannot be read or is no PEM text */
export function readPem(file: string, what: string): string {
  let text: string | null;
  try {
    text = readAtMost(file, PEM_BYTES_MAX);
  } catch (error) {
    throw new Error(`cannot read ${what}: ${messageOf(error)}`);
  }
  if (text === null)
    throw new Error(`cannot use ${what}: ${file} has more than ${PEM_BYTES_MAX} bytes; name a file in PEM format`);
  if (!text.includes("-----BEGIN ")) throw new Error(`cannot use ${what}: ${file} is not in PEM format`);
  return text;
}

/** The `tls` option of `Bun.serve`. */
export const serverOptions = ({ cert, key, clientCa }: ServerTls) => ({
  cert,
  key,
  ...(clientCa === null ? {} : { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
});
