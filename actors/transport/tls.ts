/** TLS certificates of the two ends of a connection, as PEM texts. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { RunConfig } from "../config/config.ts";
import { readAtMost } from "../config/layers.ts";
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

/** The certificates of all known authorities together take a quarter of this size. */
const PEM_BYTES_MAX = 2 ** 20;

/** @param what  name of the setting, for the message. @throws {Error} in one line, if the file cannot be read, or is no PEM text with a certificate or a key */
export function readPem(file: string, what: string): string {
  let text: string | null;
  try {
    text = readAtMost(file, PEM_BYTES_MAX);
  } catch (error) {
    throw new Error(`cannot read ${what}: ${messageOf(error)}`);
  }
  if (text === null)
    throw new Error(`cannot use ${what}: ${file} has more than ${PEM_BYTES_MAX} bytes; name a file in PEM format`);
  const wanted = /key/i.test(what) ? "PRIVATE KEY" : "CERTIFICATE";
  if (!text.includes(`${wanted}-----`)) {
    const found = /-----BEGIN ([^-]+)-----/.exec(text)?.[1];
    const reason = found === undefined ? "is not in PEM format" : `holds a ${found}`;
    throw new Error(`cannot use ${what}: ${file} ${reason}; name a file with a ${wanted} in PEM format`);
  }
  return text;
}

/** The certificates of a gate. @throws {Error} in one line, if a file cannot be read, or key and certificate are no pair */
export function serverTls({ certFile, keyFile, clientCaFile }: RunConfig["join"]): ServerTls {
  const cert = readPem(certFile ?? "", "join.certFile");
  const key = readPem(keyFile ?? "", "join.keyFile");
  const certificate = parsed("join.certFile", certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsed("join.keyFile", keyFile, "private key without a password", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new Error(
      `join.keyFile: ${keyFile} is not the private key of the first certificate in join.certFile, ${certFile}; name the two files of one pair`,
    );
  }
  return { cert, key, clientCa: clientCaFile === null ? null : readPem(clientCaFile, "join.clientCaFile") };
}

function parsed<T>(what: string, file: string | null, wanted: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new Error(`cannot use ${what}: ${file} holds no ${wanted} (${messageOf(error)}); name a file with one`);
  }
}

/** The `tls` option of `Bun.serve`. */
export const serverOptions = ({ cert, key, clientCa }: ServerTls) => ({
  cert,
  key,
  ...(clientCa === null ? {} : { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
});
