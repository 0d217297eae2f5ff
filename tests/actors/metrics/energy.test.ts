import { expect, test } from "bun:test";
import { energyReader } from "../../../actors/metrics/meter.ts";

const root = "/sys/class/powercap";
/** A machine of two packages; a part of one, and a zone of another kind. */
function machine() {
  const files: Record<string, string> = {
    [`${root}/intel-rapl:0/energy_uj`]: "1000000\n",
    [`${root}/intel-rapl:0/max_energy_range_uj`]: "9000000\n",
    [`${root}/intel-rapl:1/energy_uj`]: "8000000\n",
    [`${root}/intel-rapl:1/max_energy_range_uj`]: "9000000\n",
    [`${root}/intel-rapl:0:0/energy_uj`]: "1\n",
    [`${root}/intel-rapl:0:0/max_energy_range_uj`]: "9\n",
  };
  const names = () => ["dtpm", "intel-rapl", "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"];
  return { files, reader: { names, text: (path: string) => files[path] ?? null } };
}

test("adds the packages' energy up, also where a counter begins again, worked by hand", () => {
  const { files, reader } = machine();
  const joules = energyReader(reader);
  expect(joules()).toBe(0);
  files[`${root}/intel-rapl:0/energy_uj`] = "3000000\n";
  // From 8 over the range of 9 to 0.5.
  files[`${root}/intel-rapl:1/energy_uj`] = "500000\n";
  expect(joules()).toBeCloseTo(2 + 1.5, 9);
});

test("is null, never 0, where the machine does not report it", () => {
  expect(energyReader({ names: () => [], text: () => null })()).toBeNull();
  const { reader } = machine();
  expect(energyReader({ ...reader, text: () => null })()).toBeNull();
});
