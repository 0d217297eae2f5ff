/** A sampler uses connected env servers in turn, and fails in time when no env server is connected. */
import { describe, expect, test } from "bun:test";
import { EnvServerConnections } from "../../../actors/sampler/env-connections.ts";
import type { Handler, Peer } from "../../../actors/transport/transport.ts";
import { FakeClock } from "../fake-clock.ts";

const peer = (name: string) => ({ name }) as Peer;

function stage() {
  const clock = new FakeClock();
  const lines = new Map<string, { up: boolean; closed: string | null; handler: Handler }>();
  const servers = new EnvServerConnections({
    connect(url, handler) {
      const line = { up: false, closed: null as string | null, handler };
      lines.set(url, line);
      return {
        peer: () => (line.up ? peer(url) : null),
        close: (reason) => {
          line.closed = reason;
        },
      };
    },
    waitMsMax: 1000,
    clock,
  });
  const roster = (...names: string[]) =>
    servers.update({
      type: "roster",
      learner: null,
      metricsSink: null,
      envServers: names.map((name) => ({ actor: name, url: name })),
    });
  const up = (name: string, is = true) => {
    const line = lines.get(name)!;
    line.up = is;
    if (is) line.handler.opened!(peer(name));
    else line.handler.closed!(peer(name), "lost");
  };
  return { clock, lines, servers, roster, up };
}

describe("choosing an env server", () => {
  test("takes those that are connected in turn", async () => {
    const { servers, roster, up } = stage();
    roster("a", "b", "c");
    for (const name of ["a", "c"]) up(name);
    const chosen: string[] = [];
    for (let i = 0; i < 4; i++) chosen.push((await servers.choose("e")).name);
    expect(chosen).toEqual(["a", "c", "a", "c"]);
  });

  test("waits for one to come", async () => {
    const { clock, servers, roster, up } = stage();
    roster("a");
    const chosen = servers.choose("e");
    clock.advance(900);
    up("a");
    expect((await chosen).name).toBe("a");
    expect(clock.waitingMs).toEqual([]);
  });

  test("gives up in time, by an error that lets the episode be played again", async () => {
    const { clock, servers, roster } = stage();
    roster("a");
    const chosen = servers.choose("e7").catch((error) => error);
    clock.advance(1000);
    expect(await chosen).toMatchObject({ name: "EpisodeError", boundary: "closed" });
    expect((await chosen).message).toBe("no env server for e7 in 1000 ms");
  });

  test("follows the roster: what left it is closed, what stays is kept", async () => {
    const { lines, servers, roster, up } = stage();
    roster("a", "b");
    const kept = lines.get("b");
    for (const name of ["a", "b"]) up(name);
    roster("b", "c");
    up("c");
    expect(lines.get("a")!.closed).toBe("no longer in the roster");
    expect([lines.get("b") === kept, lines.get("b")!.closed]).toEqual([true, null]);
    const chosen = [await servers.choose("e"), await servers.choose("e")].map(({ name }) => name);
    expect(chosen.sort()).toEqual(["b", "c"]);
    servers.close();
    expect(lines.get("b")!.closed).toBe("leaving");
  });
});
