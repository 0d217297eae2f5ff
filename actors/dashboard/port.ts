/** The port of the page. */

/** Check the port before a run starts. @throws {Error} if the port is not free */
export async function checkPort(host: string, port: number): Promise<void> {
  if (port !== 0) await listen(host, port, () => new Response()).stop(true);
}

/** @throws {Error} in one line, if the port is not free or the host is unknown */
export function listen(hostname: string, port: number, fetch: (request: Request) => Response | Promise<Response>) {
  try {
    // `idleTimeout`, in seconds, is longer than the streams' keep-alive, so that streams of a quiet run stay open.
    return Bun.serve({ hostname, port, fetch, idleTimeout: 60 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE") {
      throw new Error(
        `cannot serve the page on ${hostname}:${port}: the port is in use. ` +
          "Stop the other program, or choose --port N (--port 0 for any free port).",
        { cause: error },
      );
    }
    throw new Error(`cannot serve the page on ${hostname}:${port}: ${message}`, { cause: error });
  }
}
