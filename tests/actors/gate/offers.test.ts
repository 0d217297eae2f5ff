/** Which sampler gets which offer of an env server. */
import { expect, test } from "bun:test";
import { Offers, Relay } from "../../../actors/gate/relay.ts";
import { FakeClock } from "../fake-clock.ts";

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
