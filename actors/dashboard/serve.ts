/** Serves the page of a run on a port. */
import { isLoopback } from "../transport/address.ts";
import { type DashboardOptions, dashboardApp } from "./app.tsx";
import { loadAssets } from "./assets.ts";
import { serveHttp } from "./port.ts";

export interface ServeOptions extends Pick<DashboardOptions, "shown" | "token" | "clock"> {
  readonly host: string;
  /** 0 means any free port. */
  readonly port: number;
}

export interface Served {
  /** The address to open. If the page has a token, add `?token=TOKEN`. */
  readonly url: string;
  /** Ends the live streams and frees the port. */
  stop(): Promise<void>;
}

/** @throws {Error} if the port is in use, the host is unknown, or other machines could read the page without a token. */
export async function serveDashboard({ host, port, token, ...options }: ServeOptions): Promise<Served> {
  if (token === null && !isLoopback(host)) {
    throw new Error(
      `cannot serve the page on ${host}: other machines could read it without a token. ` +
        "Set --metrics.token=SECRET, or use --metrics.host=127.0.0.1.",
    );
  }
  const closing = new AbortController();
  const app = dashboardApp({ ...options, token, assets: await loadAssets(), signal: closing.signal });
  const server = serveHttp("the page", {
    hostname: host,
    port,
    // In seconds. This time is longer than the time between a stream's keep-alive messages, so that the streams of a quiet run stay open.
    idleTimeout: 60,
    fetch: (request) => app.fetch(request),
  });
  const urlHost = host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${urlHost}:${server.port}/`,
    async stop() {
      closing.abort();
      await server.stop(true);
    },
  };
}
