/** A relay joins two connections: which frames the relay holds, how many are too many, and how both connections end. */
import { describe, expect, test } from "bun:test";
import { Offers, Relay, type RelayEnd } from "../../../actors/gate/relay.ts";
import { FakeClock } from "../fake-clock.ts";

describe("a relay", () => {
  function end(queuedBytes = 0) {
    const sent: Uint8Array[] = [];
    const closed: string[] = [];
    const it: RelayEnd = {
      queuedBytes,
      send: (frame) => sent.push(frame) > 0,
      close: (reason) => void closed.push(reason),
    };
    return { it, sent, closed };
  }

  test("holds frames until the other end is connected, in order, up to queuedBytesMax", () => {
    const relay = new Relay(8);
    const [left, right] = [end(), end()];
    relay.attach(0, left.it);
    const frame = Uint8Array.of(1, 2, 3);
    relay.frame(0, frame);
    frame.fill(9);
    relay.frame(0, Uint8Array.of(4));
    relay.attach(1, right.it);
    relay.frame(1, Uint8Array.of(5));
    expect([right.sent, left.sent]).toEqual([[Uint8Array.of(1, 2, 3), Uint8Array.of(4)], [Uint8Array.of(5)]]);

    const full = new Relay(8);
    full.attach(0, left.it);
    for (let i = 0; i < 4; i++) full.frame(0, new Uint8Array(3));
    expect([left.closed, full.closed]).toEqual([
      ["one end is not connected yet: 9 bytes wait for it, queuedBytesMax is 8"],
      true,
    ]);
  });

  test("is closed when an end reads too slowly, or drops a frame", () => {
    for (const [slow, reason] of [
      [end(6), "one end reads too slowly: 9 bytes wait for it, queuedBytesMax is 8"],
      [
        { ...end(), it: { ...end().it, send: () => false } },
        "a frame was dropped: the socket of one end is closing, or full",
      ],
    ] as const) {
      const [fast, relay] = [end(), new Relay(8)];
      relay.attach(0, fast.it);
      relay.attach(1, slow.it);
      relay.frame(0, new Uint8Array(3));
      expect(fast.closed).toEqual([reason]);
    }
  });

  test("that is closed closes an end that comes too late", () => {
    const relay = new Relay(8);
    relay.close("enough");
    const late = end();
    relay.attach(1, late.it);
    expect(late.closed).toEqual(["this connection was closed before its second end came"]);
  });

  test("passes what just fits, and after its end nothing more, and gives one reason", () => {
    const [left, right, relay] = [end(), end(5), new Relay(8)];
    relay.attach(0, left.it);
    relay.frame(0, new Uint8Array(8));
    relay.attach(1, end().it);
    relay.attach(1, right.it);
    relay.frame(0, new Uint8Array(3));
    expect([relay.closed, right.sent.length]).toEqual([false, 1]);
    relay.close("enough");
    relay.close("too much");
    relay.frame(0, new Uint8Array(1));
    expect([left.closed, right.closed, right.sent.length]).toEqual([["enough"], ["enough"], 1]);
  });
});

test("an offer is used once, by the sampler that waited longest, and not by one that has gone", () => {
  const clock = new FakeClock();
  const offers = new Offers(clock, 1000);
  const relay = () => new Relay(8);
  const [gone, first, second] = [relay(), relay(), relay()];
  for (const one of [gone, first, second]) offers.take("far", one);
  gone.close("left");
  const used: Relay[] = [];
  const offer = () => offers.add("far", (one) => void used.push(one));
  offer();
  offer();
  const withdraw = offer();
  withdraw();
  offer();
  offers.take("far", gone);
  expect(used).toEqual([first, second, gone]);
});

test("an offer that was used or withdrawn is given to no one else, and a sampler that has one waits no longer", () => {
  const clock = new FakeClock();
  const offers = new Offers(clock, 1000);
  const used: string[] = [];
  const offer = (name: string) => offers.add("far", () => void used.push(name));
  const relays = Array.from({ length: 4 }, () => new Relay(8));
  offers.take("far", relays[0]!);
  offer("a");
  const withdraw = offer("b");
  offer("c");
  withdraw();
  for (const relay of relays.slice(1)) offers.take("far", relay);
  expect(used).toEqual(["a", "c"]);
  clock.advance(1000);
  // The last two found no offer.
  expect(relays.map(({ closed }) => closed)).toEqual([false, false, true, true]);
  offer("d");
  expect([used, clock.waitingMs]).toEqual([["a", "c"], []]);
});
