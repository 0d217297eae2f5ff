/** Certificates of the gate and of guests: a wrong file is named before anything listens or connects. */
import { expect, test } from "bun:test";
import { readPem, serverTls } from "../../../actors/transport/tls.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { configOf } from "../training/stage.ts";
import { certificates } from "./certificates.ts";

const pem = certificates(temporaryFolder());
const gate = (certFile: string, keyFile: string) =>
  serverTls({ ...configOf({}).join, certFile: pem.path(certFile), keyFile: pem.path(keyFile) });

test("the certificate and the key of one pair are taken", () => {
  expect(gate("server.crt", "server.key")).toEqual({
    cert: pem.text("server.crt"),
    key: pem.text("server.key"),
  });
});

test("the key of another certificate is refused, and both files are named", () => {
  expect(() => gate("server.crt", "ca.key")).toThrow(
    `join.keyFile: ${pem.path("ca.key")} is not the private key of the first certificate in join.certFile, ${pem.path("server.crt")}; name`,
  );
});

test("a key in place of a certificate, and the reverse, are refused", () => {
  expect(() => readPem(pem.path("ca.key"), "--ca")).toThrow(
    `cannot use --ca: ${pem.path("ca.key")} holds a PRIVATE KEY; name a file with a CERTIFICATE in PEM format`,
  );
  expect(() => gate("server.crt", "server.crt")).toThrow("holds a CERTIFICATE; name a file with a PRIVATE KEY");
});
