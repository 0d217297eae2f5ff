/** Runs a test while the environment names a proxy. The proxy answers every request with an error. */
export async function behindProxy(body: () => Promise<void>): Promise<void> {
  using proxy = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response("asked the proxy", { status: 403 }),
  });
  const before = process.env["HTTP_PROXY"];
  process.env["HTTP_PROXY"] = proxy.url.href;
  try {
    await body();
  } finally {
    if (before === undefined) delete process.env["HTTP_PROXY"];
    else process.env["HTTP_PROXY"] = before;
  }
}
