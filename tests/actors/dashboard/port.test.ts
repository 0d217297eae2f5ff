/** The errors of a port or a host that cannot be served. */
import { expect, test } from "bun:test";
import { freePort, serveHttp } from "../../../actors/dashboard/port.ts";

const opened = (hostname: string, port: number) =>
  serveHttp("the page", { hostname, port, idleTimeout: 0, fetch: () => new Response() });

test("a taken port and a host that is no address of this machine have different errors", () => {
  using taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  expect(() => opened("127.0.0.1", taken.port)).toThrow(`127.0.0.1:${taken.port}: the port is in use. Stop the other`);
  expect(() => opened("localhost", taken.port)).toThrow("the port is in use. Stop the other");
  expect(() => opened("192.0.2.1", 0)).toThrow(
    "cannot serve the page on 192.0.2.1:0: 192.0.2.1 is no address of this machine. Name an address of this machine",
  );
  expect(() => opened("300.1.1.1", 0)).toThrow("300.1.1.1 is no address of this machine, or the port is in use.");
});

test("a port that was found free is free", async () => {
  const port = await freePort("the page", "127.0.0.1", 0);
  const server = opened("127.0.0.1", port);
  expect(server.port).toBe(port);
  await expect(freePort("the page", "127.0.0.1", port)).rejects.toThrow("the port is in use");
  await server.stop(true);
});
