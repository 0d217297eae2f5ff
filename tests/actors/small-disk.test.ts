/** The trajectory log on a disk that is really full: a file system of its own, of a few hundred kilobytes. */
import { afterAll, describe, expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Store } from "../../actors/dashboard/store.ts";
import { MetricsSink } from "../../actors/metrics-sink.ts";
import type { EpisodeRow } from "../../actors/protocol.ts";
import { figure } from "../figure.ts";
import { removeTemporaryFolders, temporaryFolder } from "../scripts/temporary.ts";
import { FakeClock } from "./children/fake-clock.ts";
import { playedRow, silentPeer } from "./fake-run.ts";

const folder = temporaryFolder();
const mounted = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", folder], {
  stderr: "ignore",
}).success;
if (!mounted) console.log("skipped: this account may not mount a small file system");
afterAll(() => {
  if (mounted) Bun.spawnSync(["umount", folder]);
  removeTemporaryFolders();
});

describe.skipIf(!mounted)("a full disk", () => {
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
        queuedMax: 1000,
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
      figure("disk full in the trajectory log", { durability, ...kept });
      store.close();
      for (const file of ["", "-wal", "-shm"]) rmSync(path + file, { force: true });
    },
  );
});
