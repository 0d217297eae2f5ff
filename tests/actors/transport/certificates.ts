/** Certificates made for one test, by openssl: a CA, a server and a client of it, and a self-signed stranger. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

const SCRIPT = `
set -e
make() { openssl req "$@" -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes; }
make -x509 -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
make -x509 -keyout stranger.key -out stranger.crt -days 2 -subj /CN=stranger
for name in server client; do
  make -keyout $name.key -out $name.csr -subj /CN=$name
  printf "subjectAltName=DNS:localhost,IP:127.0.0.1\n" > names
  openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -days 2 -extfile names
done`;

/** @returns path and text of each certificate, by name */
export function certificates(folder: string) {
  const { success, stderr } = Bun.spawnSync(["bash", "-c", SCRIPT], { cwd: folder });
  if (!success) throw new Error(`openssl failed: ${stderr}`);
  const path = (name: string) => join(folder, name);
  return { path, text: (name: string) => readFileSync(path(name), "utf8") };
}
