/** The trajectory log on a real file system of its own: one of a few hundred kilobytes that is full, and one whose power fails. */

import { afterEach, expect, test } from "bun:test";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { latestCheckpoint, loadCheckpoint, saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { MetricsSink } from "../../../actors/metrics-sink/metrics-sink.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import type { EpisodeRow } from "../../../actors/protocol.ts";
import { smallDisk } from "../../ends.ts";
import { figure } from "../../figure.ts";
import { describeWhere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { playedRow, silentPeer } from "../metrics-sink/fake-run.ts";
import { checkpointOf } from "./faulty-disk.ts";

const { folder, lack } = smallDisk(800);

describeWhere(lack, "a full disk", () => {
  test.each(["normal", "full"] as const)(
    "loses no episode that was acknowledged, and takes the others when there is room (%s)",
    (durability) => {
      const path = join(folder, `${durability}.sqlite`);
      const store = new Store({ path, durability, wallClock: () => 1_700_000_000_000 });
      const sink = new MetricsSink({
        store,
        actor: "metrics-sink",
        clock: new FakeClock(),
        flushMs: 250,
        waitingMax: 1000,
      });
      const ask = (rows: EpisodeRow[]) => sink.asked(silentPeer, { type: "episodes", rows });
      const ballast = join(folder, "ballast");
      writeFileSync(ballast, new Uint8Array(200_000));
      const batch = (n: number) => Array.from({ length: 20 }, (_, i) => playedRow({ episode: `b${n}.e${i}` }));
      let acknowledged = 0;
      let answer = ask(batch(0));
      for (
        ;
        answer instanceof Promise === false && answer.type === "episodes.stored";
        answer = ask(batch(acknowledged / 20))
      ) {
        acknowledged += 20;
      }
      expect(answer).toMatchObject({ type: "failed", code: "capacity" });
      expect(acknowledged).toBeGreaterThan(0);
      const stored = () => store.episodes({}, { limit: 5000 }).rows.map(({ episode }) => episode);
      expect(stored()).toHaveLength(acknowledged);
      rmSync(ballast);
      expect(ask(batch(acknowledged / 20))).toEqual({ type: "episodes.stored", count: 20 });
      const names = stored();
      expect([names.length, new Set(names).size]).toEqual([acknowledged + 20, acknowledged + 20]);
      const kept = { acknowledged, lost: 0, "stored when there was room": 20 };
      figure("disk full under `run.sqlite`", { durability, ...kept });
      store.close();
      for (const file of ["", "-wal", "-shm"]) rmSync(path + file, { force: true });
    },
  );
});

/** An ext4 in a file; null where this account may not have one. What was not synced has not reached the file. */
class Disk {
  readonly #image: string;
  readonly #at: string;

  static make(): Disk | null {
    const disk = new Disk(join(temporaryFolder(), "image"), temporaryFolder());
    writeFileSync(disk.#image, new Uint8Array(16 << 20));
    if (!run("mkfs.ext4", "-q", "-F", disk.#image) || !disk.mount()) return null;
    disk.unmount();
    return disk;
  }

  private constructor(image: string, at: string) {
    this.#image = image;
    this.#at = at;
  }

  path(name: string): string {
    return join(this.#at, name);
  }

  mount(): boolean {
    mounts.add(this.#at);
    return run("mount", "-o", "loop,commit=300", this.#image, this.#at);
  }

  unmount(): void {
    mounts.delete(this.#at);
    run("umount", this.#at);
  }

  /** Whatever the disk has by now, as it is found when the power is back. */
  asAfterPowerLoss(): Disk {
    const found = new Disk(`${this.#image}-found`, temporaryFolder());
    copyFileSync(this.#image, found.#image);
    return found;
  }
}
const run = (...command: string[]) => Bun.spawnSync(command, { stderr: "ignore" }).success;
const mounts = new Set<string>();
const mayHaveDisk = Disk.make() !== null;
afterEach(() => {
  for (const at of mounts) run("umount", at);
  mounts.clear();
});

describeWhere(mayHaveDisk ? null : "this account may not mount a file as a disk", "a loss of power", () => {
  test.each(["normal", "full"] as const)(
    "leaves a whole log; with full, all that was acknowledged (%s)",
    (durability) => {
      const disk = Disk.make()!;
      disk.mount();
      const store = new Store({ path: disk.path("run.sqlite"), durability, wallClock: () => 1_700_000_000_000 });
      const sink = new MetricsSink({
        store,
        actor: "metrics-sink",
        clock: new FakeClock(),
        flushMs: 250,
        waitingMax: 10,
      });
      const episodes = Array.from({ length: 40 }, (_, i) => `e${i}`);
      for (const episode of episodes)
        expect(sink.asked(silentPeer, { type: "episodes", rows: [playedRow({ episode })] })).toMatchObject({
          count: 1,
        });
      const after = disk.asAfterPowerLoss();
      store.close();
      disk.unmount();

      expect(after.mount()).toBe(true);
      const found = new Store({ path: after.path("run.sqlite"), durability, wallClock: () => 1_700_000_000_000 });
      const stored = found
        .episodes({}, { limit: 100 })
        .rows.map(({ episode }) => episode)
        .reverse();
      found.close();
      after.unmount();
      // The first of the rows, in order, and no others.
      expect(stored).toEqual(episodes.slice(0, stored.length));
      if (durability === "full") expect(stored).toHaveLength(episodes.length);
      figure("loss of power", { durability, acknowledged: episodes.length, lost: episodes.length - stored.length });
    },
  );

  test("leaves a checkpoint that was saved, whole", async () => {
    const disk = Disk.make()!;
    disk.mount();
    const path = await saveCheckpoint(disk.path("checkpoints"), checkpointOf(3));
    const after = disk.asAfterPowerLoss();
    disk.unmount();
    expect(after.mount()).toBe(true);
    const { found, skipped } = await latestCheckpoint(after.path("checkpoints"));
    expect([found, skipped]).toEqual([after.path(join("checkpoints", basename(path))), []]);
    expect(await loadCheckpoint(found!)).toEqual(checkpointOf(3));
    after.unmount();
  });
});
