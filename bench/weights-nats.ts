/** The same bytes through the object store of a NATS broker: put by one client and got by another. Part of `bun run bench weights`. */
import { Objm } from "@nats-io/obj";
import { connect } from "@nats-io/transport-node";
import { startBroker } from "./broker.ts";

/** @returns milliseconds until one client has them, which the client checks by their sha256; samplers would each take as long as it. */
export async function throughObjectStore(bytes: Uint8Array): Promise<number> {
  await using ends = new AsyncDisposableStack();
  const { address } = await startBroker(ends);
  const [from, to] = [await client(ends, address), await client(ends, address)];
  const store = await new Objm(from).create("weights");
  const theirs = await new Objm(to).open("weights");
  const memory = new Uint8Array(bytes.length).fill(1);
  const began = performance.now();
  await store.putBlob({ name: "policy" }, bytes);
  const found = await theirs.get("policy");
  if (found === null) throw new Error("the object store lost what was put");
  let got = 0;
  for await (const chunk of found.data) {
    memory.set(chunk, got);
    got += chunk.length;
  }
  const wrong: Error | null | undefined = await found.error;
  // What it resolves to when nothing is wrong is not what its type says.
  if (wrong || got !== bytes.length) throw new Error("other bytes came out of the object store", { cause: wrong });
  return performance.now() - began;
}

async function client(ends: AsyncDisposableStack, address: string) {
  const connection = await connect({ servers: address.replace("nats://", "") });
  ends.defer(() => connection.close());
  return connection;
}
