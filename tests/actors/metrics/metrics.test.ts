import { describe, expect, test } from "bun:test";
import {
  isMetricName,
  METRIC_NAMES,
  type MetricName,
  metric,
  metricValues,
  partName,
  splitName,
} from "../../../actors/metrics/metrics.ts";

describe("metricValues", () => {
  test("gives the values back unchanged", () => {
    expect(metricValues({ "train/success": 0.25, "train/grad_norm": 3 })).toEqual({
      "train/success": 0.25,
      "train/grad_norm": 3,
    });
  });

  test("refuses a name that is not in the table", () => {
    const misspelt = { "train/sucess": 1 } as Partial<Record<MetricName, number>>;
    expect(() => metricValues(misspelt)).toThrow(
      new RangeError('no metric named "train/sucess"; add it to METRICS in actors/metrics/metrics.ts'),
    );
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])("refuses %p", (value) => {
    expect(() => metricValues({ "train/grad_norm": value })).toThrow(
      new RangeError(`train/grad_norm is ${value}; a metric must be finite; leave it out and report an event instead`),
    );
  });
});

describe("the table", () => {
  test("names every metric as group/snake_case, so that it maps to one Prometheus name", () => {
    for (const name of METRIC_NAMES) expect(name).toMatch(/^[a-z]+\/[a-z][a-z0-9]*(_[a-z0-9]+)*$/);
  });

  test("explains every metric in one whole sentence", () => {
    for (const name of METRIC_NAMES) expect(metric(name).help).toMatch(/^[A-Z0-9].{10,}\.$/);
  });

  test("counts whatever is measured in time as timed", () => {
    const clocks = ["seconds", "milliseconds", "tokens/s", "updates/min", "bytes"];
    for (const name of METRIC_NAMES)
      if (clocks.includes(metric(name).unit)) expect([name, metric(name).timed]).toEqual([name, true]);
  });
});

describe("a metric of one part", () => {
  test("has the row of the whole, and a name of its own", () => {
    const name = partName("train/success", "env", "FrozenLake");
    expect(name as string).toBe("train/success{env=FrozenLake}");
    expect(splitName(name)).toEqual({ row: "train/success", part: ["env", "FrozenLake"] });
    expect(metric(name)).toBe(metric("train/success"));
    expect(metricValues({ [name]: 0.5 })).toEqual({ "train/success{env=FrozenLake}": 0.5 });
  });

  test.each([
    "train/success{k=2}",
    "validate/pass{env=Ice}",
    "train/entropy{env=Ice}",
    "train/sucess{env=Ice}",
    "train/success{env=}",
    "train/success{env=a}b",
  ])("%s is none", (name) => {
    expect(isMetricName(name)).toBe(false);
  });
});
