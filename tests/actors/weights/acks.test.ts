/** A sampler counts as updated once it has named the published digest, and not before. */
import { beforeEach, describe, expect, test } from "bun:test";
import { Acks } from "../../../actors/weights/acks.ts";
import { sequence } from "../../../model/rng.ts";

const digest = (version: number) => version.toString(16).padStart(64, "0");
let acks: Acks;
beforeEach(() => {
  acks = new Acks();
  acks.expect(1, digest(1));
});

/** If a promise is settled by now. */
const settled = (promise: Promise<void>) =>
  Promise.race([promise.then(() => true), Promise.resolve().then(() => false)]);

describe("everyone", () => {
  test("is waited for until the last of those present has loaded it", async () => {
    for (const sampler of ["a", "b"]) acks.join(sampler);
    const all = acks.everyone(1);
    expect(acks.loaded("a", 1, digest(1))).toBe(true);
    expect(await settled(all)).toBe(false);
    expect(acks.loaded("b", 1, digest(1))).toBe(true);
    expect(await settled(all)).toBe(true);
  });

  test("is empty without samplers, so every version counts as loaded", async () => {
    expect(await settled(acks.everyone(1))).toBe(true);
  });

  test("does not include who leaves", async () => {
    for (const sampler of ["a", "b"]) acks.join(sampler);
    acks.loaded("a", 1, digest(1));
    const all = acks.everyone(1);
    acks.leave("b");
    expect(await settled(all)).toBe(true);
  });

  test("has loaded a version by loading a newer one", async () => {
    acks.join("a");
    const first = acks.everyone(1);
    const second = acks.everyone(2);
    const third = acks.everyone(3);
    acks.expect(2, digest(2));
    acks.loaded("a", 2, digest(2));
    expect(await Promise.all([first, second, third].map(settled))).toEqual([true, true, false]);
  });
});

describe("a sampler", () => {
  test("holds nothing before its first report", () => {
    acks.join("a");
    expect(acks.version("a")).toBeNull();
    acks.loaded("a", 1, digest(1));
    expect(acks.version("a")).toBe(1);
  });

  test("with other bytes is quarantined until it joins again, and no update waits for it", async () => {
    for (const sampler of ["good", "bad"]) acks.join(sampler);
    const all = acks.everyone(1);
    acks.loaded("good", 1, digest(1));
    expect(acks.loaded("bad", 1, digest(9))).toBe(false);
    expect(await settled(all)).toBe(true);
    expect([acks.quarantined, acks.version("bad")]).toEqual([["bad"], null]);
    expect(acks.loaded("bad", 1, digest(1))).toBe(false);
    acks.join("bad");
    expect(acks.loaded("bad", 1, digest(1))).toBe(true);
    expect([acks.quarantined, acks.version("bad")]).toEqual([[], 1]);
  });

  test("cannot hold a version that this learner never published", () => {
    acks.join("a");
    expect(acks.loaded("a", 7, digest(7))).toBe(false);
    expect(acks.quarantined).toEqual(["a"]);
  });

  test("never goes back: an older version after a newer one changes nothing", () => {
    acks.expect(2, digest(2));
    acks.join("a");
    acks.loaded("a", 2, digest(2));
    expect(acks.loaded("a", 1, digest(1))).toBe(true);
    expect(acks.version("a")).toBe(2);
  });

  test("that comes back must report again what it holds", async () => {
    acks.join("a");
    acks.loaded("a", 1, digest(1));
    acks.join("a");
    expect(acks.version("a")).toBeNull();
    expect(await settled(acks.everyone(1))).toBe(false);
  });

  test("that is not there cannot acknowledge", () => {
    expect(acks.loaded("ghost", 1, digest(1))).toBe(false);
    expect([acks.version("ghost"), acks.quarantined]).toEqual([null, []]);
  });
});

test("it refuses to expect a version that is not newer", () => {
  for (const version of [0, 1]) {
    expect(() => acks.expect(version, digest(version))).toThrow(
      new RangeError(`cannot expect version ${version}: version 1 was published, and versions only grow`),
    );
  }
});

test("the holders are the samplers that hold a version, after any reports, joins and leaves", () => {
  const names = Array.from({ length: 20 }, (_, i) => `sampler/${i}`);
  const draw = sequence(7, "reports");
  for (let version = 2; version < 200; version++) {
    acks.expect(version, digest(version));
    for (const name of names) {
      const kind = draw();
      if (kind < 0.2) acks.join(name);
      else if (kind < 0.3) acks.leave(name);
      else acks.loaded(name, version, digest(kind < 0.4 ? 0 : version));
    }
    expect(acks.holders).toBe(names.filter((name) => acks.version(name) !== null).length);
  }
});
