/** Weights that were mapped before they were published are the published ones to the bit, whenever and whatever samplers were told. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readlinkSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseMessage } from "../../../actors/protocol.ts";
import { SHARED_MEMORY } from "../../../actors/weights/files.ts";
import {
  loadWeights,
  MappedAhead,
  type Prepared,
  type Published,
  WeightsError,
  WeightsPublisher,
} from "../../../actors/weights/publisher.ts";
import { canBeBlank } from "../../../actors/weights/write.ts";

const LENGTH = 3000;
const values = (version: number, length = LENGTH) => Float32Array.from({ length }, (_, i) => version + i / length);
const pathOf = ({ location }: Published) => (location.kind === "shared" ? location.path : "");

/** Nothing is prepared where files are not memory. */
const there = process.platform === "linux" && canBeBlank(SHARED_MEMORY);

describe.if(there)("a prepared version", () => {
  let folder: string;
  let publisher: WeightsPublisher;
  beforeEach(async () => {
    folder = mkdtempSync(join(SHARED_MEMORY, "bunraku-test-"));
    publisher = new WeightsPublisher({ folder, run: "test", nameless: true });
    await publisher.publish(1, values(1));
  });
  afterEach(() => {
    publisher.close();
    rmSync(folder, { recursive: true });
  });

  /** Open files of ours that have no name. */
  const openFiles = () =>
    readdirSync("/proc/self/fd").filter((file) => {
      try {
        return readlinkSync(`/proc/self/fd/${file}`).startsWith(`${folder}/`);
      } catch {
        return false;
      }
    }).length;

  test("lies where samplers were told, who are told again when its bytes are there, before anybody knows their digest", async () => {
    const prepared = (await publisher.prepare())!;
    expect(parseMessage(prepared)).toEqual(prepared);
    const told: Prepared[] = [];
    const ahead = new MappedAhead();
    ahead.look(prepared);
    const publishing = publisher.publish(2, values(2), (next) => {
      told.push(next);
      ahead.look(next);
    });
    expect(told).toEqual([prepared]);
    const message = await publishing;
    expect(message.location).toMatchObject({ path: prepared.path, byteOffset: 0, seal: { key: prepared.key } });
    const loaded = await loadWeights(message, LENGTH, "", undefined, null, ahead);
    expect(loaded).toEqual({ values: values(2), digest: message.digest });
    // Without having looked it is the same.
    expect(await loadWeights(message, LENGTH)).toEqual(loaded);
  });

  test.each([
    ["never", []],
    ["before its bytes are there", ["prepared"]],
    ["only when they are", ["there"]],
    ["after it was published", ["published"]],
    ["again and again", ["prepared", "prepared", "there", "there", "published"]],
  ])("is itself to who looked %s", async (_, when: string[]) => {
    const ahead = new MappedAhead();
    const look = (moment: string, next: Prepared) => {
      for (const _ of when.filter((one) => one === moment)) ahead.look(next);
    };
    for (const version of [2, 3, 4]) {
      const prepared = (await publisher.prepare())!;
      look("prepared", prepared);
      const message = await publisher.publish(version, values(version), (next) => look("there", next));
      look("published", prepared);
      const loaded = await loadWeights(message, LENGTH, "", undefined, null, ahead);
      expect(loaded).toEqual({ values: values(version), digest: message.digest });
    }
  });

  test("is what was published, not what lay under the same name before", async () => {
    const last = new WeightsPublisher({ folder, run: "test", nameless: true, keep: 1 });
    await last.publish(1, values(1));
    const prepared = (await last.prepare())!;
    const ahead = new MappedAhead();
    ahead.look(prepared);
    // What was prepared does not fit, and is gone; sooner or later another version gets its place.
    let message = await last.publish(2, values(2, 10));
    expect(await loadWeights(message, 10)).toMatchObject({ values: values(2, 10) });
    do message = await last.publish(message.version + 1, values(message.version + 1));
    while (pathOf(message) !== prepared.path && message.version < 20);
    expect([pathOf(message), message.byteLength]).toEqual([prepared.path, prepared.byteLength]);
    const loaded = await loadWeights(message, LENGTH, "", undefined, null, ahead);
    expect(loaded).toEqual({ values: values(message.version), digest: message.digest });
    last.close();
  });

  test.each([
    ["one that looked before", ["prepared"]],
    ["one that looked at them", ["there"]],
    ["one that looked twice", ["prepared", "there"]],
    ["one that never looked", []],
  ])("whose bytes are others than were hashed is refused by %s, naming what it found", async (_, when: string[]) => {
    const prepared = (await publisher.prepare())!;
    const ahead = new MappedAhead();
    if (when.includes("prepared")) ahead.look(prepared);
    const wrong = new Uint8Array(values(2).buffer);
    wrong[1234]! ^= 4;
    const message = await publisher.publish(2, values(2), (next) => {
      writeFileSync(next.path, wrong, { flag: "r+" });
      if (when.includes("there")) ahead.look(next);
    });
    const error = await loadWeights(message, LENGTH, "", undefined, null, ahead).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(WeightsError);
    expect((error as WeightsError).digest).toBe(new Bun.CryptoHasher("sha256").update(wrong).digest("hex"));
  });

  test("that was cut short is refused, whoever has mapped it", async () => {
    const prepared = (await publisher.prepare())!;
    const [early, twice, blind] = [new MappedAhead(), new MappedAhead(), new MappedAhead()];
    for (const ahead of [early, twice]) ahead.look(prepared);
    const message = await publisher.publish(2, values(2), (next) => {
      truncateSync(next.path, 4096);
      twice.look(next);
    });
    for (const ahead of [early, twice, blind]) {
      const loading = loadWeights(message, LENGTH, "", undefined, null, ahead);
      await expect(loading).rejects.toThrow("the file has 4096 bytes, and 12000 from byte 0 on were published");
    }
  });

  test("that never comes leaves nothing, and no open file", async () => {
    const ahead = new MappedAhead();
    ahead.look((await publisher.prepare())!);
    expect(await publisher.prepare()).toMatchObject({ byteLength: 4 * LENGTH });
    expect(openFiles()).toBe(2);
    publisher.close();
    expect([openFiles(), readdirSync(folder), await publisher.prepare()]).toEqual([0, [], null]);
    const other = new WeightsPublisher({ folder, run: "test", nameless: true });
    await other.publish(1, values(1));
    const preparing = other.prepare();
    other.close();
    expect([await preparing, openFiles()]).toEqual([null, 0]);
  });

  test("is not waited for: a version that comes while it is being made goes its own way", async () => {
    const preparing = publisher.prepare();
    const message = await publisher.publish(2, values(2), () => expect.unreachable());
    const prepared = (await preparing)!;
    expect((await loadWeights(message, LENGTH)).values).toEqual(values(2));
    expect(pathOf(await publisher.publish(3, values(3)))).toBe(prepared.path);
  });

  test("is not needed to look ahead: large ones are told of when they are written, if they are not hashed by then", async () => {
    const length = 5 << 20;
    const told: Prepared[] = [];
    const ahead = new MappedAhead();
    const message = await publisher.publish(2, values(2, length), (next) => {
      told.push(next);
      ahead.look(next);
    });
    const seal = message.location.kind === "shared" ? message.location.seal : null;
    const place = { type: "weights.next", path: pathOf(message), byteLength: 4 * length, key: seal!.key } as const;
    // Which of the two comes first is for the machine to say.
    expect(told).toEqual(told.length === 0 ? [] : [place]);
    const loaded = await loadWeights(message, length, "", undefined, null, ahead);
    expect(loaded).toEqual({ values: values(2, length), digest: message.digest });
  });

  test("is none where there is no version yet, files have names, or a version is large", async () => {
    const of = (nameless: boolean) => new WeightsPublisher({ folder, run: "test", nameless });
    const [empty, named, large] = [of(true), of(false), of(true)];
    await named.publish(1, values(1));
    await large.publish(1, new Float32Array((64 << 18) + 1));
    for (const one of [empty, named, large]) {
      expect(await one.prepare()).toBeNull();
      one.close();
    }
  });
});

test("looking at what is not there is no error, and hands out nothing", () => {
  const ahead = new MappedAhead();
  ahead.look({ type: "weights.next", path: "/proc/self/fd/none", byteLength: 4, key: "0".repeat(32) });
  expect(ahead.take("/proc/self/fd/none", 4, { key: "0".repeat(32), tag: "0".repeat(32) })).toBeNull();
});
