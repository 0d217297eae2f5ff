/** What the learner writes to a real file system of a few hundred kilobytes. */

import { expect, test } from "bun:test";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realPorts } from "../../../actors/learner/ports.ts";
import type { Report } from "../../../actors/training/report.ts";
import { smallDisk } from "../../ends.ts";
import { describeWhere } from "../../needs.ts";

const { folder, lack } = smallDisk(400);

describeWhere(lack, "a report", () => {
  test("that does not fit on the disk is none: the run is not finished", () => {
    const report = { run: "run", updates: 6 } as Report;
    const file = join(folder, "report.json");
    const ballast = join(folder, "ballast");
    expect(() => writeFileSync(ballast, new Uint8Array(1_000_000))).toThrow("ENOSPC");
    expect(() => realPorts.saveReport(folder, report)).toThrow("ENOSPC");
    expect(existsSync(file)).toBe(false);
    rmSync(ballast);
    realPorts.saveReport(folder, report);
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(report);
  });
});
