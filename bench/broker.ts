/** A NATS server with JetStream on this machine, for benches and tests. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Path of nats-server; null if it is not installed. */
export const natsServer = Bun.which("nats-server");
export const NO_BROKER = "no NATS: nats-server is not installed (on Debian: apt-get install nats-server)";

export interface BrokerProcess {
  /** nats://127.0.0.1:PORT */
  readonly address: string;
  readonly port: number;
  readonly pid: number;
  /** Kills the server without warning. The server's files stay. */
  kill(): Promise<void>;
  /** Starts the server again, on the same port and files. */
  restart(): Promise<void>;
  end(): Promise<void>;
}

/**
 * @param more     arguments of nats-server besides its address, port and disk
 * @param streams  false to start the server without JetStream
 */
export async function startBroker(more: readonly string[] = [], streams = true): Promise<BrokerProcess> {
  if (natsServer === null) throw new Error(NO_BROKER);
  const disk = mkdtempSync(join(tmpdir(), "broker-"));
  const start = async (port: number) => {
    const child = Bun.spawn(
      [natsServer!, "-a", "127.0.0.1", "-p", String(port), ...(streams ? ["-js", "-sd", disk] : []), ...more],
      {
        stdout: "ignore",
        stderr: "pipe",
      },
    );
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    let log = "";
    void (async () => {
      for await (const text of child.stderr.pipeThrough(new TextDecoderStream())) {
        log += text;
        if (/Server is ready/.test(log)) resolve(Number(/client connections on 127\.0\.0\.1:(\d+)/.exec(log)?.[1]));
      }
      reject(new Error(`nats-server ended: ${log.slice(-500)}`));
    })();
    return { child, port: await promise };
  };
  let { child, port } = await start(-1);
  const kill = async () => {
    child.kill("SIGKILL");
    await child.exited;
  };
  return {
    address: `nats://127.0.0.1:${port}`,
    port,
    get pid() {
      return child.pid;
    },
    kill,
    async restart() {
      ({ child } = await start(port));
    },
    async end() {
      await kill();
      rmSync(disk, { recursive: true, force: true });
    },
  };
}
