/** A NATS broker for a bench, on this machine. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Path of the program; null if it is not installed. */
export const natsServer = Bun.which("nats-server");
export const NO_BROKER = "no NATS: nats-server is not installed (on Debian: apt-get install nats-server)";

/** The broker ends when `ends` is disposed. */
export async function startBroker(ends: AsyncDisposableStack): Promise<{ address: string; pid: number }> {
  const disk = mkdtempSync(join(tmpdir(), "bench-broker-"));
  ends.defer(() => rmSync(disk, { recursive: true, force: true }));
  const child = Bun.spawn([natsServer!, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", disk], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  ends.defer(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  let log = "";
  for await (const text of child.stderr.pipeThrough(new TextDecoderStream())) {
    log += text;
    const port = /client connections on 127\.0\.0\.1:(\d+)/.exec(log)?.[1];
    if (port !== undefined && log.includes("Server is ready"))
      return { address: `nats://127.0.0.1:${port}`, pid: child.pid };
  }
  throw new Error(`nats-server ended: ${log.slice(-500)}`);
}
