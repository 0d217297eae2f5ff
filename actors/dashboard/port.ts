/** Opens HTTP ports for the page and for `bun run serve`. */
import { isIP } from "node:net";

/** Call before a run starts. @throws {Error} if the page's port is not free */
export async function checkPort(hostname: string, port: number): Promise<void> {
  if (port !== 0) await freePort("the page", hostname, port);
}

/** @param what  what the port will serve @returns `port`, or a free port if `port` is 0. @throws {Error} if the port is not free */
export async function freePort(what: string, hostname: string, port: number): Promise<number> {
  const probe = serveHttp(what, { hostname, port, idleTimeout: 0, fetch: () => new Response() });
  const found = probe.port!;
  await probe.stop(true);
  return found;
}

interface HttpOptions {
  readonly hostname: string;
  /** 0 means any free port. */
  readonly port: number;
  /** The server closes a connection after this many seconds without traffic; 0 means never. */
  readonly idleTimeout: number;
  readonly fetch: (request: Request) => Response | Promise<Response>;
}

/** @param what  what the port serves, such as "the page". @throws {Error} in one line, if the server cannot listen at this address */
export function serveHttp(what: string, options: HttpOptions) {
  try {
    return Bun.serve(options);
  } catch (error) {
    const { hostname, port } = options;
    throw new Error(`cannot serve ${what} on ${hostname}:${port}: ${faultOf(hostname, error)}`, { cause: error });
  }
}

function faultOf(hostname: string, error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  // If a host name has no address, Bun reports the code of an earlier failure, often EADDRINUSE.
  const isName = isIP(hostname.replace(/^\[(.*)\]$/, "$1")) === 0 && hostname !== "localhost";
  if (isName || code === "EADDRNOTAVAIL") {
    const orInUse = isName ? ", or the port is in use" : "";
    const advice = "Name an address of this machine as the host, such as 127.0.0.1.";
    return `${hostname} is no address of this machine${orInUse}. ${advice}`;
  }
  if (code !== "EADDRINUSE") return message;
  return "the port is in use. Stop the other program, or choose --port N (--port 0 for any free port).";
}
