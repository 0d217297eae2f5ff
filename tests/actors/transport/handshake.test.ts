/** Hello and welcome, and connections that come back. */
import { describe, expect, test } from "bun:test";
import { realClock } from "../../../actors/clock.ts";
import { type Message, type Messages, PROTOCOL_VERSION, type Tell } from "../../../actors/protocol.ts";
import { type HostHandler, helloOf, type Identity, sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import { connectForever } from "../../../actors/transport/reconnect.ts";
import type { Handler, Peer, Transport } from "../../../actors/transport/transport.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "./memory.ts";

const me: Identity = { actor: "sampler-1", role: "sampler", url: null };
const idle: Handler = { told() {}, asked: () => ({ type: "failed", code: "protocol", detail: "" }) };
const note = (text: string): Tell => ({ type: "event", actor: "a", level: "info", kind: "note", text });
const open: Messages["env.open"] = { type: "env.open", episode: "e1", env: "bandit", layoutSeed: 1, dynamicsSeed: 2 };

function memory(): Transport {
  return new MemoryTransport(new MemoryNetwork(), {
    clock: realClock,
    token: "t",
    frameBytesMax: 10_000,
    queuedBytesMax: 10_000,
  });
}

/** One turn of the memory network and then some: everything sent so far and its answers have arrived. */
async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
}

class Host implements HostHandler {
  readonly seen: string[] = [];
  readonly peers: Peer[] = [];

  joined(peer: Peer, { actor, url }: Messages["hello"]): void {
    this.seen.push(`joined ${actor} ${url}`);
    this.peers.push(peer);
    peer.tell(note("nice to have you"));
  }

  told(_: Peer, message: Tell, { actor }: Messages["hello"]): void {
    this.seen.push(`${message.type} from ${actor}`);
  }

  asked(): Messages["env.opened"] {
    return { type: "env.opened", episode: "e1", observation: "", actionsLeft: 1 };
  }

  left(_: Peer, { actor }: Messages["hello"], reason: string): void {
    this.seen.push(`left ${actor}: ${reason}`);
  }
}

describe("a handshake", () => {
  async function connected() {
    const transport = memory();
    const host = new Host();
    await transport.listen("memory:host", welcoming("run-1", host));
    return { host, peer: await transport.connect("memory:host", idle) };
  }

  test("introduces the two ends, and passes everything on after it", async () => {
    const { host, peer } = await connected();
    expect(await sayHello(peer, me, 1000, "run-1")).toBe("run-1");
    peer.tell(note("hi"));
    expect((await peer.ask(open, 1000)).type).toBe("env.opened");
    peer.close("done");
    await settle();
    expect(host.seen).toEqual(["joined sampler-1 null", "event from sampler-1", "left sampler-1: done"]);
  });

  test("lets an actor report its url later, but not another name", async () => {
    const { host, peer } = await connected();
    await sayHello(peer, me, 1000);
    await sayHello(peer, { ...me, url: "ws://127.0.0.1:1" }, 1000);
    expect(sayHello(peer, { ...me, actor: "sampler-2" }, 1000)).rejects.toThrow(
      "memory:host did not welcome sampler-2: sampler sampler-2 said hello on the connection of sampler sampler-1",
    );
    await settle();
    expect(host.seen).toEqual(["joined sampler-1 null", "joined sampler-1 ws://127.0.0.1:1"]);
  });

  test("tells that an actor left also if the connection ends at once after a repeated hello", async () => {
    const { host, peer } = await connected();
    await sayHello(peer, me, 1000);
    const again = sayHello(peer, { ...me, url: "ws://127.0.0.1:1" }, 1000);
    // The host gets the hello and the close in one turn of the event loop.
    peer.close("the process ends");
    await expect(again).rejects.toThrow("closed before it answered hello");
    await settle();
    expect(host.seen).toEqual(["joined sampler-1 null", "left sampler-1: the process ends"]);
  });

  test("closes a connection on which something comes before hello", async () => {
    const { host, peer } = await connected();
    expect(await peer.ask(open, 1000)).toMatchObject({ type: "failed", code: "closed" });
    expect(host.seen).toEqual([]);
  });

  test("is refused by the host for another protocol version", async () => {
    const { peer } = await connected();
    expect(await peer.ask({ ...helloOf(me), protocol: 999 }, 1000)).toEqual({
      type: "failed",
      code: "protocol",
      detail: `sampler-1 speaks protocol 999, this run speaks ${PROTOCOL_VERSION}. Use the same version of Bunraku at both ends.`,
    });
  });

  test("is refused by the guest for another protocol version or another run", async () => {
    const transport = memory();
    await transport.listen("memory:old", { ...idle, asked: () => ({ type: "welcome", run: "run-1", protocol: 0 }) });
    await transport.listen("memory:other", welcoming("run-2", new Host()));
    expect(sayHello(await transport.connect("memory:old", idle), me, 1000)).rejects.toThrow(
      `memory:old speaks protocol 0, we speak ${PROTOCOL_VERSION}`,
    );
    expect(sayHello(await transport.connect("memory:other", idle), me, 1000, "run-1")).rejects.toThrow(
      "memory:other belongs to run run-2, and sampler-1 to run run-1",
    );
  });
});

describe("connectForever", () => {
  /** How long the connection waits after each of so many failed attempts. */
  async function waitsOf(clock: FakeClock, attempts: number): Promise<number[]> {
    const waits: number[] = [];
    for (let i = 0; i < attempts; i++) {
      await settle();
      waits.push(clock.waitingMs[0]!);
      clock.advance(waits.at(-1)!);
    }
    return waits;
  }

  function setup(address = () => "memory:host", uniform = () => 1, opened = () => {}) {
    const transport = memory();
    const clock = new FakeClock();
    const seen: string[] = [];
    const failures: string[] = [];
    const handler: Handler = {
      ...idle,
      opened() {
        seen.push("opened");
        opened();
      },
      told: (_, message: Message) => void seen.push(message.type === "event" ? message.text : message.type),
      closed: (_, reason) => void seen.push(`closed: ${reason}`),
    };
    const connection = connectForever({
      transport,
      address,
      me: () => me,
      run: "run-1",
      handler,
      clock,
      uniform,
      failed: (detail, attempt) => failures.push(`${attempt}: ${detail}`),
    });
    return { transport, clock, seen, failures, connection };
  }

  test("waits twice as long after each failure, up to a limit, and connects when the listener is there", async () => {
    const { transport, clock, seen, failures, connection } = setup();
    expect(await waitsOf(clock, 7)).toEqual([50, 100, 200, 400, 800, 1000, 1000]);
    await settle();
    await transport.listen("memory:host", welcoming("run-1", new Host()));
    clock.advance(1000);
    await settle();
    expect(seen).toEqual(["opened", "nice to have you"]);
    expect(failures).toHaveLength(8);
    expect(failures[0]).toBe("1: Error: cannot connect to memory:host: nothing listens there");
    expect(connection.peer()).not.toBeNull();
  });

  test("waits longer after each failure without a function for failures, too", async () => {
    const clock = new FakeClock();
    connectForever({
      transport: memory(),
      address: () => "memory:host",
      me: () => me,
      handler: idle,
      clock,
      uniform: () => 1,
    });
    expect(await waitsOf(clock, 4)).toEqual([50, 100, 200, 400]);
  });

  test("waits twice as long after each failure of its handler, too", async () => {
    const broken = () => {
      throw new Error("a bug");
    };
    const { transport, clock, failures, connection } = setup(undefined, undefined, broken);
    await transport.listen("memory:host", welcoming("run-1", new Host()));
    // The first attempt came before there was a listener.
    expect(await waitsOf(clock, 4)).toEqual([50, 100, 200, 400]);
    expect(failures.slice(1)).toEqual(
      [2, 3, 4].map((attempt) => `${attempt}: the handler of memory:host failed: Error: a bug`),
    );
    expect(connection.peer()).toBeNull();
  });

  test("jitters the wait between a half and the whole of it", async () => {
    const { clock } = setup(undefined, () => 0);
    await settle();
    expect(clock.waitingMs).toEqual([25]);
  });

  test("says hello again after each loss", async () => {
    const { transport, clock, seen, connection } = setup();
    const host = new Host();
    await transport.listen("memory:host", welcoming("run-1", host));
    await settle();
    // The first attempt came before there was a listener.
    clock.advance(100);
    for (let round = 0; round < 2; round++) {
      await settle();
      host.peers.at(-1)!.close("restarting");
      await settle();
      expect(connection.peer()).toBeNull();
      clock.advance(100);
    }
    await settle();
    const session = ["opened", "nice to have you", "closed: restarting"];
    expect(seen).toEqual([...session, ...session, "opened", "nice to have you"]);
    expect(host.seen.filter((line) => line.startsWith("joined"))).toHaveLength(3);
  });

  test("shows its handler nothing of a host that belongs to another run, and keeps trying", async () => {
    const { transport, clock, seen, failures } = setup();
    await transport.listen("memory:host", welcoming("run-2", new Host()));
    await settle();
    clock.advance(100);
    await settle();
    expect(seen).toEqual([]);
    expect(failures.at(-1)).toContain("memory:host belongs to run run-2, and sampler-1 to run run-1");
    expect(clock.waitingMs).toEqual([100]);
  });

  test("takes a new address at the next attempt", async () => {
    let address = "memory:old";
    const { transport, clock, seen } = setup(() => address);
    await settle();
    await transport.listen("memory:new", welcoming("run-1", new Host()));
    address = "memory:new";
    clock.advance(100);
    await settle();
    expect(seen[0]).toBe("opened");
  });

  test("that is closed while it connects tells the other end the reason", async () => {
    const transport = memory();
    const closed = Promise.withResolvers<string>();
    await transport.listen("memory:host", { ...idle, closed: (_, reason) => closed.resolve(reason) });
    const common = { address: () => "memory:host", me: () => me, handler: idle, clock: new FakeClock() };
    connectForever({ ...common, transport, uniform: () => 1 }).close("the run is over");
    expect(await closed.promise).toBe("the run is over");
  });

  test("does nothing more once it is closed", async () => {
    const { clock, connection, failures } = setup();
    await settle();
    connection.close("the end");
    expect(clock.waitingMs).toEqual([]);
    expect(failures).toHaveLength(1);
  });
});
