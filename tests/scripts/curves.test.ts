/** `bun run curves`: what it draws of recorded runs, read back from the SVG, and everything it refuses. */

import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { chromiumPath, launch } from "../../bench/chromium.ts";
import { recordIn, type Values } from "../actors/metrics-sink/recorded.ts";
import { command, commandHere, expectRefusal } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

// A browser takes its time to start beside other tests; each test still ends at once or fails.
setDefaultTimeout(60_000);

const folder = temporaryFolder();

function record(name: string, values: Values, env = "Bandit"): string {
  const path = join(folder, name);
  recordIn(path, values, { env }).close();
  return path;
}

let pictures = 0;
async function draw(...args: string[]): Promise<string> {
  const out = join(folder, `picture-${pictures++}.svg`);
  const { code, err } = await commandHere(["curves", ...args, "--out", out]);
  expect([code, err]).toEqual([0, ""]);
  return readFileSync(out, "utf8");
}

const upTo = (last: number, value: (step: number) => number) =>
  Array.from({ length: last }, (_, i) => [i + 1, value(i + 1)] as const);

/** The markup of one metric's panel. */
const panelOf = (svg: string, metric: MetricName) =>
  new RegExp(`<g data-metric="${metric}">.*?</g>`, "s").exec(svg)![0];

/** Curves of a panel, as points of the picture: y grows downwards. */
const curvesOf = (panel: string) =>
  [...panel.matchAll(/<polyline points="([^"]*)" class="curve" stroke="([^"]*)"/g)].map(([, points, color]) => ({
    points: pointsOf(points!),
    color: color!,
  }));

const bandsOf = (panel: string) =>
  [...panel.matchAll(/<polygon points="([^"]*)" fill="([^"]*)"/g)].map(([, points, color]) => ({
    points: pointsOf(points!),
    color: color!,
  }));

const pointsOf = (points: string) => points.split(" ").map((pair) => pair.split(",").map(Number) as [number, number]);

const dashedOf = (panel: string) =>
  [...panel.matchAll(/<line [^>]*y1="([^"]*)"[^>]* stroke-dasharray[^>]*>/g)].map(([, y]) => Number(y));

/** Every text of the markup, its parts joined as a reader sees them. */
const textsOf = (markup: string) =>
  [...markup.matchAll(/<text [^>]*>(.*?)<\/text>/gs)].map(([, inside]) => inside!.replaceAll(/<[^>]*>/g, ""));

describe("one line for each run", () => {
  const half = record("half", { "validate/success": [[0, 0.5], [10, 0.5]], "baseline/random": [[0, 0.25]] }); // biome-ignore format: a row a metric
  const full = record("full", { "validate/success": [[0, 0], [10, 1]], "baseline/random": [[0, 0.25]] }); // biome-ignore format: a row a metric

  test("lies where its values are, and so does the line of chance", async () => {
    const panel = panelOf(await draw(half, full, "--metrics", "validate/success"), "validate/success");
    const [flat, rising] = curvesOf(panel);
    const [bottom, top] = rising!.points.map(([, y]) => y) as [number, number];
    expect(flat!.points.map(([, y]) => y)).toEqual([(top + bottom) / 2, (top + bottom) / 2]);
    expect(flat!.points.map(([x]) => x)).toEqual(rising!.points.map(([x]) => x));
    expect(dashedOf(panel)).toEqual([bottom - (bottom - top) / 4]);
    expect(flat!.color).not.toBe(rising!.color);
    expect(textsOf(panel)).toEqual(expect.arrayContaining(["100 %", "0 %", "random 25.0 %", "update"]));
  });

  test("names each tick of a small share", async () => {
    const rare = record("rare", { "train/success": [[0, 0], [1, 0.004]] }); // biome-ignore format: a row a metric
    const panel = panelOf(await draw(rare, "--metrics", "train/success"), "train/success");
    const shares = textsOf(panel).filter((text) => text.endsWith(" %"));
    expect(shares).toEqual(["0.0 %", "0.1 %", "0.2 %", "0.3 %", "0.4 %"]);
  });

  test("has a baseline of its own, in its color, where only some runs have one", async () => {
    const without = record("without", { "validate/success": [[0, 0.4]] }, "Sokoban");
    const panel = panelOf(await draw(without, half, "--metrics", "validate/success"), "validate/success");
    const [, ofHalf] = curvesOf(panel).map(({ color }) => color);
    expect(panel.match(/<line [^>]*stroke-dasharray[^>]*>/g)!).toEqual([expect.stringContaining(`stroke="${ofHalf}"`)]);
  });

  test("has a baseline of its own, in its color, where runs differ in it", async () => {
    const other = record("other", { "validate/success": [[0, 0.4]], "baseline/random": [[0, 0.1]] });
    const svg = await draw(half, other, "--metrics", "validate/success");
    const both = panelOf(svg, "validate/success");
    expect(new Set(dashedOf(both)).size).toBe(2);
    expect(textsOf(both)).not.toContain("random 10.0 %");
    expect(textsOf(svg)).toEqual(expect.arrayContaining(["2 runs", "half", "other"]));
    expect(await draw(other, "--metrics", "validate/success")).toContain("run other");
  });

  test("draws seven metrics if none are named, each with its unit and meaning", async () => {
    const svg = await draw(half);
    const drawn = [...svg.matchAll(/data-metric="([^"]*)"/g)].map(([, name]) => name);
    expect(drawn).toEqual([
      "validate/success",
      "train/reward_mean",
      "train/in_group_std",
      "train/entropy",
      "train/grad_norm",
      "train/zero_std_groups",
      "train/reply_tokens",
    ]);
    expect(textsOf(svg)).toEqual(
      expect.arrayContaining([
        "validate/success (share)",
        "train/entropy (nats)",
        "Share of validation episodes that the policy solved.",
      ]),
    );
  });

  test("says which run did not record a metric, and where none did", async () => {
    const quiet = record("quiet", { "train/entropy": upTo(3, () => 0.5) });
    const svg = await draw(half, quiet);
    expect(textsOf(panelOf(svg, "validate/success"))).toContain("not recorded by quiet");
    expect(textsOf(panelOf(svg, "train/entropy"))).toContain("not recorded by half");
    expect(textsOf(panelOf(svg, "train/grad_norm"))).toContain("no run recorded this metric");
  });

  test("tells folders of one name apart by their parents", async () => {
    const twins = ["first/run", "second/run"].map((name) => record(name, { "validate/success": [[0, 0.5]] }));
    const texts = textsOf(await draw(...twins, "--metrics", "validate/success"));
    expect(texts).toEqual(expect.arrayContaining(["first/run", "second/run"]));
  });
});

describe("a group of seeds", () => {
  const seeds = [
    record("s1", { "train/entropy": [[1, 0], [2, 0.2], [3, 1]] }), // biome-ignore format: a row a metric
    record("s2", { "train/entropy": [[1, 0.8], [2, 0.4]] }), // biome-ignore format: a row a metric
  ].join(",");

  test("is one line, the mean where all have a value, in a band from the lowest to the highest", async () => {
    const svg = await draw("--group", `StarPO=${seeds}`, "--metrics", "train/entropy");
    const panel = panelOf(svg, "train/entropy");
    const [mean, more] = curvesOf(panel);
    const [band] = bandsOf(panel);
    expect(more).toBeUndefined();
    expect(band!.color).toBe(mean!.color);
    // Steps 1 and 2: means 0.4 and 0.3, lows 0 and 0.2, highs 0.8 and 0.4.
    const [low1, low2, high2, high1] = band!.points.map(([, y]) => y) as [number, number, number, number];
    const yOf = (value: number) => low1 + (value / 0.8) * (high1 - low1);
    expect(mean!.points.map(([x]) => x)).toEqual(band!.points.slice(0, 2).map(([x]) => x));
    for (const [y, value] of [[mean!.points[0]![1], 0.4], [mean!.points[1]![1], 0.3], [low2, 0.2], [high2, 0.4]]) expect(y!).toBeCloseTo(yOf(value!), 1); // biome-ignore format: a row a value
    expect(textsOf(svg)).toContain("StarPO (2 seeds)");
  });

  test("stands beside other groups and single runs, each with a color and a label", async () => {
    const one = record("s3", { "train/entropy": [[1, 0.1]] });
    const svg = await draw(
      one,
      "--group",
      `A=${seeds}`,
      "--group",
      `B=${one}`,
      "--metrics",
      "train/entropy,train/success",
    );
    expect(new Set(curvesOf(panelOf(svg, "train/entropy")).map(({ color }) => color)).size).toBe(3);
    expect(textsOf(svg)).toEqual(expect.arrayContaining(["s3", "A (2 seeds)", "B (1 seed)"]));
  });

  test("is dashed, in its panel and in the legend, if --dashed names its label", async () => {
    const one = record("s4", { "train/entropy": [[1, 0.1]] });
    const svg = await draw(one, "--group", `A=${seeds}`, "--dashed", "A", "--metrics", "train/entropy");
    const [solid] = curvesOf(svg);
    const dashed = [
      ...svg.matchAll(/class="(?:curve )?dashed" stroke="([^"]*)"|stroke="([^"]*)"[^>]* class="dashed"/g),
    ];
    const colors = dashed.map(([, curve, legend]) => curve ?? legend);
    expect(colors).toHaveLength(2);
    expect(new Set(colors).size).toBe(1);
    expect(colors[0]).not.toBe(solid!.color);
    const { code, err } = await commandHere(["curves", one, "--dashed", "B", "--out", join(folder, "never.svg")]);
    expect([code, err]).toEqual([2, 'error: --dashed names "B", but the lines are s4\n']);
  });

  test("whose seeds share no update has no mean, and says so", async () => {
    const late = record("late", { "train/entropy": [[7, 0.5]] });
    const svg = await draw("--group", `A=${join(folder, "s2")},${late}`, "--metrics", "train/entropy");
    expect(textsOf(svg)).toContain("no mean of A: its seeds share no update");
    expect(curvesOf(panelOf(svg, "train/entropy"))).toEqual([]);
  });

  test("is named beside other groups without a mean and a run that recorded nothing, in a small panel too", async () => {
    const [late, quiet] = [record("later", { "train/entropy": [[7, 0.5]] }), record("mute", {})];
    const groups = ["A", "B"].flatMap((label) => ["--group", `${label}=${join(folder, "s2")},${late}`]);
    const metrics = ["--metrics", "train/entropy,train/grad_norm,train/reward_mean"];
    const texts = textsOf(panelOf(await draw(...groups, quiet, ...metrics), "train/entropy"));
    expect(texts).toContain("no mean of A, B: their seeds share no update");
    expect(texts).toContain("not recorded by mute");
  });
});

describe("a long series", () => {
  test("is thinned, and covers in every column of pixels what the whole line would", async () => {
    const value = (step: number) => (step === 7777 ? 100 : step === 12_345 ? -100 : Math.sin(step * 12.9898) * 10);
    const long = record("long", { "train/grad_norm": upTo(20_000, value) });
    // The same axes: the corners of the long run, which also tell where its values lie.
    const frame = record("frame", { "train/grad_norm": [[0, -100], [20_000, 100]] }); // biome-ignore format: a row a metric
    const svg = await draw(frame, long, "--metrics", "train/grad_norm");
    const [corners, thinned] = curvesOf(panelOf(svg, "train/grad_norm"));
    const [[left, low], [right, high]] = corners!.points as [[number, number], [number, number]];
    const columns = new Map<number, { top: number; bottom: number }>();
    const cover = (into: typeof columns, x: number, y: number) => {
      const { top, bottom } = into.get(Math.floor(x)) ?? { top: y, bottom: y };
      into.set(Math.floor(x), { top: Math.min(top, y), bottom: Math.max(bottom, y) });
    };
    for (const [step, at] of upTo(20_000, value)) {
      cover(columns, left + (step / 20_000) * (right - left), low - ((at + 100) / 200) * (low - high));
    }
    const drawn = new Map<number, { top: number; bottom: number }>();
    for (const [x, y] of thinned!.points) cover(drawn, x, y);
    expect(thinned!.points.length).toBeLessThanOrEqual(4 * columns.size);
    expect(Math.min(...thinned!.points.map(([, y]) => y))).toBe(high);
    expect(Math.max(...thinned!.points.map(([, y]) => y))).toBe(low);
    // Written to a hundredth of a pixel, a point may fall into the next column: compare each with its neighbours.
    for (const [column, { top, bottom }] of columns) {
      const near = [column - 1, column, column + 1].flatMap((at) => drawn.get(at) ?? []);
      expect(Math.min(...near.map((one) => one.top))).toBeLessThanOrEqual(top + 0.01);
      expect(Math.max(...near.map((one) => one.bottom))).toBeGreaterThanOrEqual(bottom - 0.01);
    }
  });

  test("of a group has spikes in its band that its mean does not have", async () => {
    const spike = (sign: number) =>
      upTo(20_000, (step) => (step === 7777 ? 100 * sign : Math.sin(step * 12.9898) * 10));
    const seeds = [1, -1].map((sign) => record(`spike${sign}`, { "train/grad_norm": spike(sign) }));
    const svg = await draw("--group", `A=${seeds.join(",")}`, "--metrics", "train/grad_norm");
    const ys = bandsOf(panelOf(svg, "train/grad_norm"))[0]!.points.map(([, y]) => y!);
    const [line] = curvesOf(panelOf(svg, "train/grad_norm"));
    const middle = line!.points[0]![1]!;
    const reach = Math.max(...line!.points.map(([, y]) => Math.abs(y! - middle)));
    expect(middle - Math.min(...ys)).toBeGreaterThan(5 * reach);
    expect(Math.max(...ys) - middle).toBeGreaterThan(5 * reach);
  });
});

describe("the file", () => {
  const run = record("plain", { "validate/success": [[0, 0.5]] });

  test("is the same bytes each time, and the run's are left as they were", async () => {
    const before = readFileSync(join(run, "run.sqlite"));
    expect(await draw(run)).toBe(await draw(run));
    expect(readFileSync(join(run, "run.sqlite")).equals(before)).toBe(true);
  });

  test("holds titles, labels and folders as text only, whatever they are made of", async () => {
    const evil = record('<img src=x onerror="1">&\u001b[31m', { "validate/success": [[0, 0.5]] });
    const svg = await draw(evil, "--title", "<script>alert('1')</script>]]>\ufffe", "--metrics", "validate/success");
    expect([...new Set([...svg.matchAll(/<([a-z]+)/g)].map(([, name]) => name))].sort()).toEqual([
      "circle",
      "g",
      "line",
      "polyline",
      "rect",
      "style",
      "svg",
      "text",
      "title",
    ]);
    expect(textsOf(svg)).toContain("&lt;script&gt;alert('1')&lt;/script&gt;]]&gt;\ufffd");
    expect(textsOf(svg).join("\n")).toContain("&lt;img src=x onerror=&quot;1&quot;&gt;&amp;‹1B›[31m");
  });

  test("has line colors with a contrast of at least 4.5 on the card", async () => {
    const runs = Array.from({ length: 8 }, (_, i) => record(`color-${i}`, { "validate/success": [[0, i / 8]] }));
    const svg = await draw(...runs, "--metrics", "validate/success");
    const colors = [...svg.matchAll(/class="curve" stroke="(#[0-9a-f]{6})"/g)].map(([, color]) => color!);
    expect(new Set(colors).size).toBe(8);
    const card = luminance(/rx="14" fill="(#[0-9a-f]{6})"/.exec(svg)![1]!);
    for (const color of colors) expect((card + 0.05) / (luminance(color) + 0.05)).toBeGreaterThan(4.5);
  });

  test.skipIf(chromiumPath === null)("as PNG is twice as wide and high", async () => {
    const out = join(folder, "picture.png");
    expect((await command(["curves", run, "--out", out])).code).toBe(0);
    const bytes = readFileSync(out);
    const [, width, height] = /<svg [^>]*width="(\d+)" height="(\d+)"/.exec(await draw(run))!;
    expect(bytes.subarray(0, 8)).toEqual(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]));
    expect([bytes.readUInt32BE(16), bytes.readUInt32BE(20)]).toEqual([2 * Number(width), 2 * Number(height)]);
  });

  test.skipIf(chromiumPath === null)("is XML in which no text leaves the picture or covers another", async () => {
    const name = (i: number) =>
      `${i}: a setting with a long name & many words, ${"of which there are more ".repeat(i)}`;
    const values = { "validate/success": [[0, 0.1], [10, 0.5]], "baseline/random": [[0, 0.1]] } as const; // biome-ignore format: a row a metric
    const groups = Array.from({ length: 8 }, (_, i) => ["--group", `${name(i)}=${record(`long-${i}`, values)}`]).flat();
    const svg = await draw(...groups, "--metrics", "validate/success,train/entropy", "--title", name(9));
    const browser = await launch();
    try {
      const page = await browser.newPage();
      await page.setContent(svg);
      const { fault, texts } = await page.evaluate<{ fault: string | null; texts: Rectangle[] }>(`({
        fault: new DOMParser().parseFromString(${JSON.stringify(svg)}, "image/svg+xml").querySelector("parsererror")?.textContent ?? null,
        texts: [...document.querySelectorAll("text")].map((text) => {
          const { x, y, width, height } = text.getBBox();
          return { text: text.textContent, x, y: y + 2, width, height: height - 4 };
        }),
      })`);
      expect(fault).toBeNull();
      expect(texts.filter(({ x, width }) => x < 0 || x + width > 900)).toEqual([]);
      const covered = texts.flatMap((a, i) => texts.slice(i + 1).filter((b) => overlap(a, b)).map((b) => [a.text, b.text])); // biome-ignore format: a row
      expect(covered).toEqual([]);
    } finally {
      await browser.close();
    }
  });

  test("may end in .SVG, and metrics may have spaces between them", async () => {
    const out = join(folder, "LARGE.SVG");
    const metrics = ["--metrics", "train/entropy, validate/success"];
    const { code, out: said } = await commandHere(["curves", run, ...metrics, "--out", out]);
    expect([code, said]).toEqual([0, `drew 2 metrics in ${out}\n`]);
    expect(readFileSync(out, "utf8")).toStartWith("<svg ");
  });

  test("that cannot be written is an error in one line", async () => {
    const { code, err } = await commandHere(["curves", run, "--out", join(run, "run.sqlite", "x.svg")]);
    expect(code).toBe(1);
    expect(err).toMatch(/^error: cannot write .*x\.svg: .+\n$/);
  });

  test("as PNG needs a Chromium, and without one says what to do", async () => {
    const away = { BUNRAKU_CHROMIUM: join(folder, "no-chromium") };
    const { code, err } = await commandHere(["curves", run, "--out", join(folder, "x.png")], away);
    expect(code).toBe(2);
    expect(err).toMatch(/^error: cannot write a PNG: no Chromium at .*no-chromium; .*write an \.svg.*\n$/);
  });
});

interface Rectangle {
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}
const overlap = (a: Rectangle, b: Rectangle) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** Relative luminance of "#rrggbb", WCAG 2. */
function luminance(color: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

describe("what it refuses, in one line", () => {
  const run = record("refused", { "validate/success": [[0, 0.5]] });
  const nine = Array.from({ length: 9 }, (_, i) => record(`nine-${i}`, {}));
  const asleep = join(folder, "asleep");
  mkdirSync(asleep);
  new Store({ path: join(asleep, "run.sqlite"), durability: "normal", wallClock: () => 0 }).close();
  const broken = join(folder, "broken");
  mkdirSync(broken);
  writeFileSync(join(broken, "run.sqlite"), "this is no database, and long enough to be looked at ".repeat(100));
  const out = ["--out", join(folder, "never.svg")];

  test.each<[string, string[], RegExp]>([
    ["a run that is not there", [join(folder, "gone"), ...out], /no run in .*gone: there is no run\.sqlite/],
    ["a run that never started", [asleep, ...out], /no run in .*asleep: .*never started/],
    [
      "a mistyped metric",
      [run, "--metrics", "train/entropi", ...out],
      /no metric named "train\/entropi"; did you mean train\/entropy\?/,
    ],
    ["a metric twice", [run, "--metrics", "train/turns,train/turns", ...out], /--metrics names train\/turns twice/],
    [
      "a metric of every actor",
      [run, "--metrics", "process/rss_bytes", ...out],
      /--metrics: process\/rss_bytes has a value for each actor/,
    ],
    ["no file", [run], /name the file to write: --out FILE\.svg or --out FILE\.png/],
    ["another kind of file", [run, "--out", "x.pdf"], /--out takes a file that ends in \.svg or \.png, got "x\.pdf"/],
    ["nothing to draw", out, /name the runs to draw: folders of runs, or --group/],
    ["a group without a label", ["--group", run, ...out], /--group takes LABEL=RUN,RUN with the folders of runs, got/],
    [
      "a group with a gap",
      ["--group", `A=${run},`, ...out],
      /--group takes LABEL=RUN,RUN with the folders of runs, got/,
    ],
    ["a seed twice", ["--group", `A=${run},${run}/.`, ...out], /--group A names the run .*refused twice/],
    ["a run twice", [run, `${run}/`, ...out], /the run .*refused is named twice/],
    ["a label twice", ["--group", `A=${run}`, "--group", `A=${nine[0]}`, ...out], /two lines would have the label "A"/],
    ["more lines than colors", [...nine, ...out], /cannot draw 9 lines: there are 8 colors; join seeds/],
  ])("%s", async (_, args, message) => {
    expectRefusal(await commandHere(["curves", ...args]), message, message.source.startsWith("no run") ? 1 : 2);
  });

  test("a file that is no database", async () => {
    const { code, err } = await commandHere(["curves", broken, ...out]);
    expect(code).toBe(1);
    expect(err).toMatch(/^error: cannot open .*run\.sqlite: .+\n$/);
  });
});
