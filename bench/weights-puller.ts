/**
 * Pulls published weights twice and prints the milliseconds of the second time, because a sampler pulls many versions. Arguments: URL,
 * bytes, sha256. The token is on standard input.
 */
import { loadWeights } from "../actors/weights/load.ts";

const [url, bytes, digest] = process.argv.slice(2) as [string, string, string];
const byteLength = Number(bytes);
const token = (await Bun.stdin.text()).trim();
await pull();
const began = performance.now();
await pull();
console.log(performance.now() - began);
process.exit(0);

async function pull(): Promise<void> {
  const received = url.startsWith("tcp:") ? await overTcp(new URL(url)) : await overHttp();
  if (received !== digest) throw new Error("the received bytes have another sha256");
}

/** @returns the sha256 of the received bytes */
async function overHttp(): Promise<string> {
  const message = { type: "weights", version: 1, digest, byteLength, location: { kind: "http", url } } as const;
  return (await loadWeights(message, byteLength / 4, token)).digest;
}

/** @returns the sha256 of the received bytes */
async function overTcp({ hostname, port }: URL): Promise<string> {
  const memory = new Uint8Array(byteLength);
  const hasher = new Bun.CryptoHasher("sha256");
  const { promise, resolve } = Promise.withResolvers<string>();
  let got = 0;
  await Bun.connect({
    hostname,
    port: Number(port),
    socket: {
      data(_, chunk) {
        memory.set(chunk, got);
        hasher.update(chunk);
        got += chunk.length;
        if (got === byteLength) resolve(hasher.digest("hex"));
      },
    },
  });
  return promise;
}
