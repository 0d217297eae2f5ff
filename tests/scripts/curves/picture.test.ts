import { describe, expect, test } from "bun:test";
import type { MetricName } from "../../../actors/metrics/metrics.ts";
import type { Entry } from "../../../scripts/curves/entries.ts";
import { picture } from "../../../scripts/curves/picture.ts";
import type { Values } from "../../actors/metrics-sink/recorded.ts";

const entry = (label: string, ...runs: readonly Values[]): Entry => ({
  label,
  isGroup: runs.length > 1,
  isDashed: false,
  runs: runs.map((values, i) => ({
    name: `${label}${i}`,
    env: "Bandit",
    curve(name) {
      const pairs = values[name];
      return pairs === undefined
        ? null
        : { steps: pairs.map(([step]) => step), values: pairs.map(([, value]) => value) };
    },
  })),
});

/** The texts with this attribute, from the top to the bottom. */
const textsWith = (svg: string, attribute: string) =>
  [...svg.matchAll(/<text ([^>]*)>([^<]*)<\/text>/g)]
    .filter(([, all]) => all!.includes(attribute))
    .map(([, , text]) => text!);

const drawn = (name: MetricName, pairs: readonly (readonly [number, number])[]) =>
  picture([entry("a", { [name]: pairs })], [name], null);

describe("the texts of a panel", () => {
  const notes = (...entries: readonly Entry[]) =>
    textsWith(picture(entries, ["train/reward_mean"], null), 'class="note"');
  const recorded = { "train/reward_mean": [[0, 1]] } as const;

  test("name a group of which no run recorded the metric by its label, and of another group the runs", () => {
    expect(notes(entry("a", {}, {}), entry("b", recorded, recorded))).toEqual(["not recorded by a"]);
    expect(notes(entry("a", {}, recorded), entry("b", recorded))).toEqual(["not recorded by a0"]);
  });

  test("end with an ellipsis where the meaning of the metric is cut", () => {
    const metrics = ["validate/success", "train/log_prob_gap", "train/entropy", "train/turns"] as const;
    const help = textsWith(picture([entry("a", recorded)], metrics, null), 'class="help"');
    expect(help.filter((text) => text.endsWith("…"))).toEqual(["learner in a written token's …"]);
  });
});

describe("the ticks of values", () => {
  const ticks = (low: number, high: number, name: MetricName = "train/reward_mean") =>
    textsWith(drawn(name, [[0, low], [1, high]]), 'text-anchor="end"').join(" "); // biome-ignore format: a row

  test.each<[number, number, string]>([
    [0, 1, "0 0.2 0.4 0.6 0.8 1"],
    // Zero is near.
    [0.2, 1, "0 0.2 0.4 0.6 0.8 1"],
    [2, 10, "0 2 4 6 8 10"],
    [-10, -2, "−10 −8 −6 −4 −2 0"],
    [10, 15, "10 11 12 13 14 15"],
    [-15, -10, "−15 −14 −13 −12 −11 −10"],
    // From tick to tick, around all values.
    [0, 11, "0 5 10 15"],
    [-3, 11, "−5 0 5 10 15"],
    [0, 20_000, "0 5,000 10K 15K 20K"],
    // All values are equal.
    [0, 0, "0 0.2 0.4 0.6 0.8 1"],
    [3, 3, "0 2 4 6"],
    [-3, -3, "−6 −4 −2 0"],
  ])("from %p to %p", (low, high, texts) => {
    expect(ticks(low, high)).toBe(texts);
  });

  test("of a share begin at zero", () => {
    expect(ticks(0.8, 1, "train/success")).toBe("0 % 20 % 40 % 60 % 80 % 100 %");
  });
});

test("the ticks of updates are whole, and end with the run", () => {
  const steps = (last: number, name: MetricName = "train/entropy") =>
    textsWith(drawn(name, [[0, 0], [last, 1]]), 'text-anchor="middle"').join(" "); // biome-ignore format: a row
  expect(steps(3)).toBe("0 1 2 3 update");
  expect(steps(101)).toBe("0 10 20 30 40 50 60 70 80 90 100 update");
  expect(steps(0)).toBe("0 1 update");
  expect(steps(3, "warm/loss")).toBe("0 1 2 3 step of the warm start");
});

test("few points are dots, and many are none", () => {
  const dots = (count: number) =>
    drawn(
      "train/entropy",
      Array.from({ length: count }, (_, i) => [i, i]),
    ).match(/<circle /g)?.length ?? 0;
  expect([dots(1), dots(60), dots(80)]).toEqual([1, 60, 0]);
});

test("the last value of a baseline is drawn, in the panel of validation success only", () => {
  const a = entry("a", {
    "validate/success": [[0, 0.5]],
    "train/success": [[0, 0.5]],
    "baseline/random": [[0, 0.5], [9, 0.25]],
  }); // biome-ignore format: a row a metric
  const svg = picture([a], ["validate/success", "train/success"], null);
  expect(svg.match(/stroke-dasharray=/g)).toHaveLength(1);
  expect(textsWith(svg, 'text-anchor="end"')).toContain("random 25.0 %");
});

test("validation success has a row of its own; four other panels are two rows of two", () => {
  const small = ["train/entropy", "train/grad_norm", "train/turns", "train/success"] as const;
  const places = (metrics: readonly MetricName[]) =>
    [...picture([entry("a", {})], metrics, null).matchAll(/<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"/g)].map(
      ([, x, width]) => [Number(x), Number(width)],
    );
  // 900 pixels, margins of 20, gaps of 12.
  expect(places(["validate/success", ...small])).toEqual([[20, 860], [20, 424], [456, 424], [20, 424], [456, 424]]); // biome-ignore format: a row
  expect(places(small.slice(0, 2))).toEqual([[20, 424], [456, 424]]); // biome-ignore format: a row
});

test("a label of more than 48 characters is cut, with a sign of it", () => {
  const svg = picture(["a", "b"].map((char, i) => entry(char.repeat(48 + i), {})), ["train/entropy"], null); // biome-ignore format: a row
  expect(textsWith(svg, 'class="entry"').slice(1)).toEqual(["a".repeat(48), `${"b".repeat(47)}…`]);
});

test("a panel has at most three lines above its plot: two notes leave one line of help", () => {
  const apart = entry("apart", { "train/covariance": [[1, 0]] }, { "train/covariance": [[2, 0]] });
  const metrics = ["train/covariance", "train/entropy", "train/turns"] as const;
  const lines = (...entries: Entry[]) => {
    const [panel] = /<g data-metric="train\/covariance">.*?<\/g>/s.exec(picture(entries, metrics, null))!;
    return ["help", "note"].map((kind) => textsWith(panel, `class="${kind}"`).length);
  };
  const whole = entry("whole", { "train/covariance": [[1, 0]] });
  expect([lines(whole), lines(whole, apart), lines(apart, entry("mute", {}))]).toEqual([[2, 0], [2, 1], [1, 2]]); // biome-ignore format: a row
});
