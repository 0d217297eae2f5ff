/**
 * Part of `bun run bench weights`: how long a sampler of another host takes to download the weights, from the learner and
 * through the run's gate, measured over loopback. A bare TCP copy with a sha256 is the comparison. The three ways alternate, each
 * time in a new process.
 */
import { join } from "node:path";
import { realClock } from "../actors/clock.ts";
import { Gate } from "../actors/gate/gate.ts";
import { SocketTransport } from "../actors/transport/socket.ts";
import { serveWeights } from "../actors/weights/http.ts";
import type { WeightsPublisher } from "../actors/weights/publisher.ts";
import { median } from "../model/statistics.ts";
import { round } from "./shared.ts";

const TURNS = 3;
const TOKEN = "a-token-of-the-bench";
const PIECE_BYTES = 1 << 20;

export interface RemoteRow {
  readonly megabytes: number;
  readonly tcpMs: number;
  readonly httpMs: number;
  readonly gateMs: number;
  /** Speed of the slower of Bunraku's two ways, as a share of bare TCP's; the goal is 0.5. */
  readonly ofTcp: number;
}

/** @param version  the policy version that the publisher keeps */
export async function remoteRow(publisher: WeightsPublisher, version: number): Promise<RemoteRow> {
  const { path, message } = publisher.file(version)!;
  const weights = serveWeights(publisher);
  const limits = { clock: realClock, token: TOKEN, frameBytesMax: 1 << 16, queuedBytesMax: 1 << 20 };
  const handler = { told() {}, asked: () => ({ type: "failed", code: "protocol", detail: "not asked" }) as const };
  const listener = await new SocketTransport(limits).listen("ws://127.0.0.1:0", handler, {
    fetch: (request) => weights(request) ?? new Response("nothing here", { status: 404 }),
  });
  const gate = new Gate({
    ...limits,
    listen: "ws://127.0.0.1:0",
    tls: null,
    joinTokens: [{ token: TOKEN, roles: ["sampler"] }],
    actorsToken: TOKEN,
    connectionsMax: 8,
    strangersMax: 8,
    strangerMs: 10_000,
    find: () => listener.address,
    isActor: () => false,
    joinSettings: () => null,
    report: console.error,
  });
  const bytes = new Uint8Array(await Bun.file(path).arrayBuffer());
  const tcp = bareTcp(bytes);
  const page = (address: string) => `${address.replace(/^ws/, "http")}/weights/${version}`;
  const ways = { tcpMs: `tcp://127.0.0.1:${tcp.port}`, httpMs: page(listener.address), gateMs: page(gate.address) };
  const turns: Record<string, number>[] = [];
  for (let turn = 0; turn <= TURNS; turn++) {
    const times: Record<string, number> = {};
    for (const [name, url] of Object.entries(ways)) times[name] = await pull(url, message.byteLength, message.digest);
    // The first pass of this loop warms up the sender's code.
    if (turn > 0) turns.push(times);
  }
  tcp.stop(true);
  await gate.close();
  await listener.close();
  const medianOf = (name: keyof typeof ways) => median(turns.map((times) => times[name]!));
  const [tcpMs, httpMs, gateMs] = [medianOf("tcpMs"), medianOf("httpMs"), medianOf("gateMs")];
  return {
    megabytes: round(message.byteLength / 1e6),
    tcpMs: round(tcpMs),
    httpMs: round(httpMs),
    gateMs: round(gateMs),
    ofTcp: round(tcpMs / Math.max(httpMs, gateMs), 2),
  };
}

/** Sends all of the bytes to each client. */
function bareTcp(bytes: Uint8Array) {
  const push = (socket: Bun.Socket<{ at: number }>) => {
    while (socket.data.at < bytes.length) {
      const wrote = socket.write(bytes.subarray(socket.data.at, socket.data.at + PIECE_BYTES));
      if (wrote <= 0) return;
      socket.data.at += wrote;
    }
  };
  return Bun.listen<{ at: number }>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open(socket) {
        socket.data = { at: 0 };
        push(socket);
      },
      data() {},
      drain: push,
    },
  });
}

/** @returns the time that another process took, in milliseconds */
async function pull(url: string, byteLength: number, digest: string): Promise<number> {
  const command = [process.execPath, join(import.meta.dir, "weights-puller.ts"), url, String(byteLength), digest];
  const child = Bun.spawn(command, { stdio: [new Blob([TOKEN]), "pipe", "inherit"] });
  const text = await child.stdout.text();
  if ((await child.exited) !== 0) throw new Error(`pulling from ${url} failed`);
  return Number(text);
}
