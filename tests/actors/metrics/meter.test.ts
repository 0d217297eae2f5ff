/** What an actor measures of itself, on a clock that the test moves. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { energyReader, Meter } from "../../../actors/metrics/meter.ts";
import { FakeClock } from "../fake-clock.ts";

let clock: FakeClock;
let meter: Meter;

beforeEach(() => {
  clock = new FakeClock();
  meter = new Meter(clock);
});

describe("Meter", () => {
  test("tells rates over the last five seconds, not over the whole run", () => {
    const rates: (number | undefined)[] = [];
    for (let second = 0; second < 12; second++) {
      meter.count("speed/env_steps_per_second", second < 6 ? 10 : 40);
      clock.advance(1000);
      rates.push(meter.read()["speed/env_steps_per_second"]);
    }
    expect(rates.slice(0, 6)).toEqual([10, 10, 10, 10, 10, 10]);
    // One, two and three of five seconds at 40.
    expect(rates.slice(6, 9)).toEqual([16, 22, 28]);
    expect(rates.at(-1)).toBe(40);
  });

  test("gives time to the first named activity that is in progress, and the rest to idling", async () => {
    meter.declareActivities(["time/policy", "time/env"], "time/tickets");
    const env = Promise.withResolvers<void>();
    const reply = Promise.withResolvers<string>();
    clock.advance(1000);
    void meter.during("time/env", env.promise);
    clock.advance(500);
    const replied = meter.during("time/policy", reply.promise);
    clock.advance(1500);
    reply.resolve("Up");
    expect(await replied).toBe("Up");
    clock.advance(1000);
    env.resolve();
    await env.promise;
    expect(meter.read()).toEqual({ "time/policy": 1.5 / 4, "time/env": 1.5 / 4, "time/tickets": 1 / 4 });
  });

  test("ends the time of work that failed, and lets the failure through", async () => {
    meter.declareActivities(["time/busy"], null);
    const failing = Promise.withResolvers<void>();
    const watched = meter.during("time/busy", failing.promise);
    clock.advance(1000);
    failing.reject(new Error("boom"));
    await expect(watched).rejects.toThrow("boom");
    expect(() =>
      meter.duringCall("time/busy", () => {
        clock.advance(1000);
        throw new Error("bang");
      }),
    ).toThrow("bang");
    clock.advance(2000);
    expect(meter.read()["time/busy"]).toBe(0.5);
  });

  test("reads depths when it reports, and leaves out unknown ones", () => {
    let waiting = 3;
    meter.depth("queue/waiting", () => waiting);
    meter.depth("weights/version", () => null);
    expect(meter.read()).toEqual({ "queue/waiting": 3 });
    waiting = 0;
    expect(meter.read()).toEqual({ "queue/waiting": 0 });
  });
});

const root = mkdtempSync(join(tmpdir(), "bunraku-powercap-"));
afterAll(() => rmSync(root, { recursive: true }));
const write = (path: string, text: string) => {
  mkdirSync(join(root, dirname(path)), { recursive: true });
  writeFileSync(join(root, path), text);
};

test("energy: adds the packages' energy up, also where a counter begins again, worked by hand", () => {
  // A machine of two packages; a part of one, the zone of the whole platform (which includes the packages), and a zone of another kind.
  write("rapl/dtpm/energy_uj", "7\n");
  write("rapl/intel-rapl/energy_uj", "7\n");
  write("rapl/intel-rapl:0/energy_uj", "1000000\n");
  write("rapl/intel-rapl:0/max_energy_range_uj", "9000000\n");
  write("rapl/intel-rapl:1/energy_uj", "8000000\n");
  write("rapl/intel-rapl:1/max_energy_range_uj", "9000000\n");
  for (const at of [0, 1]) write(`rapl/intel-rapl:${at}/name`, `package-${at}\n`);
  write("rapl/intel-rapl:2/name", "psys\n");
  write("rapl/intel-rapl:2/energy_uj", "1000000\n");
  write("rapl/intel-rapl:2/max_energy_range_uj", "9000000\n");
  write("rapl/intel-rapl:0:0/energy_uj", "1\n");
  write("rapl/intel-rapl:0:0/max_energy_range_uj", "9\n");
  const joules = energyReader(join(root, "rapl"));
  expect(joules()).toBe(0);
  write("rapl/intel-rapl:0/energy_uj", "3000000\n");
  write("rapl/intel-rapl:2/energy_uj", "8000000\n");
  // From 8 over the range of 9 to 0.5.
  write("rapl/intel-rapl:1/energy_uj", "500000\n");
  expect(joules()).toBeCloseTo(2 + 1.5, 9);
});

test("energy: is null, never 0, where the machine does not report it", () => {
  expect(energyReader(join(root, "missing"))()).toBeNull();
  mkdirSync(join(root, "empty"));
  expect(energyReader(join(root, "empty"))()).toBeNull();
  // A folder cannot be read as a file.
  mkdirSync(join(root, "unreadable/intel-rapl:0/energy_uj"), { recursive: true });
  write("unreadable/intel-rapl:0/name", "package-0\n");
  write("unreadable/intel-rapl:0/max_energy_range_uj", "9000000\n");
  expect(energyReader(join(root, "unreadable"))()).toBeNull();
});
