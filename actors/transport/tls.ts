/** TLS certificates of the two ends of a connection, as PEM texts. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { TLSOptions } from "bun";
import type { RunConfig } from "../config/config.ts";
import { readAtMost } from "../config/layers.ts";
import { messageOf } from "../errors.ts";

/** Certificates of the connecting end. */
export interface ClientTls {
  /** Certificate of the CA to trust; left out: the CAs that the system trusts. */
  readonly ca?: string;
  /** Client certificate and its key; set both or neither. */
  readonly cert?: string;
  readonly key?: string;
}

/** Maximum number of bytes of a PEM file. A bundle of all known CA certificates has a quarter of this size. */
const PEM_BYTES_MAX = 2 ** 20;

/**
 * @param what  name of the setting. If the name contains "key", the file must have a private key, otherwise a certificate
 * @throws {Error} in one line, if the file is unreadable or has no such PEM text
 */
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

/**
 * The `tls` option of `Bun.serve` with the certificates of a gate. With a `clientCaFile` each client needs a certificate of this authority.
 *
 * @throws {Error} in one line, if a file is unreadable, or the key does not belong to the certificate
 */
export function serverTls({ certFile, keyFile, clientCaFile }: RunConfig["join"]): TLSOptions {
  const cert = readPem(certFile ?? "", "join.certFile");
  const key = readPem(keyFile ?? "", "join.keyFile");
  const certificate = parsed("join.certFile", certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsed("join.keyFile", keyFile, "private key without a password", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new Error(
      `join.keyFile: ${keyFile} is not the private key of the first certificate in join.certFile, ${certFile}; name the two files of one pair`,
    );
  }
  if (clientCaFile === null) return { cert, key };
  return { cert, key, ca: readPem(clientCaFile, "join.clientCaFile"), requestCert: true, rejectUnauthorized: true };
}

function parsed<T>(what: string, file: string | null, wanted: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new Error(`cannot use ${what}: ${file} holds no ${wanted} (${messageOf(error)}); name a file with one`);
  }
}
