/**
 * `bun run curves`: draws metrics of recorded runs as SVG or PNG: one panel for each metric, one line for each run. The line of a group
 * of runs is their mean, with a band from the lowest to the highest run.
 */
import { existsSync } from "node:fs";
import { writeWhole } from "../actors/checkpoint/disk.ts";
import type { MetricName } from "../actors/metrics/metrics.ts";
import { plural } from "../actors/number-text.ts";
import { firstRepeated } from "../envs/text/repeats.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { readEntries, runMetric } from "./curves/entries.ts";
import { BASELINES, ENTRIES_MAX, picture } from "./curves/picture.ts";

const DEFAULT_METRICS: readonly MetricName[] = [
  "validate/success",
  "train/reward_mean",
  "train/in_group_std",
  "train/entropy",
  "train/grad_norm",
  "train/zero_std_groups",
  "train/reply_tokens",
];

export const command = {
  words: { show: "RUN…", text: "Folders of runs; each run is one line of the picture", max: Number.POSITIVE_INFINITY },
  flags: {
    out: flag.text("FILE", "File to write, ending in .svg or .png (PNG needs Chromium)"),
    group: flag.list("LABEL=RUN,RUN", "Runs that differ only in their seeds, drawn as mean and band; may be repeated"),
    dashed: flag.list("LABEL", "Draw the line of this run or group dashed; may be repeated"),
    metrics: flag.text("A,B", "Metrics to draw (default: validation success and six training metrics)"),
    title: flag.text("TEXT", "Title of the picture (default: the name of the env)"),
  },
  examples: [
    "bun run curves runs/2026-11-20-simplesokoban-1 --out curves.svg",
    "bun run curves --group StarPO=runs/a1,runs/a2,runs/a3 --group StarPO-S=runs/s1,runs/s2,runs/s3 --out echo-trap.png",
    "bun run curves runs/a1 runs/s1 --metrics train/grad_norm,train/entropy --title 'Before the collapse' --out signs.svg",
  ],
} as const satisfies Command;

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const { out, group = [], dashed = [], title = null } = flags;
  if (out === undefined) throw new UsageError("name the file to write: --out FILE.svg or --out FILE.png");
  const format = /\.(svg|png)$/i.exec(out)?.[1]?.toLowerCase();
  if (format === undefined) throw new UsageError(`--out takes a file that ends in .svg or .png, got "${out}"`);
  if (words.length + group.length === 0)
    throw new UsageError("name the runs to draw: folders of runs, or --group LABEL=RUN,RUN");
  const metrics = flags.metrics === undefined ? DEFAULT_METRICS : metricsOf(flags.metrics);
  const entries = readEntries(words, group, dashed, [...metrics, ...Object.values(BASELINES)]);
  if (entries.length > ENTRIES_MAX) {
    throw new UsageError(
      `cannot draw ${entries.length} lines: there are ${ENTRIES_MAX} colors; join seeds with --group`,
    );
  }
  const svg = picture(entries, metrics, title);
  const content = format === "svg" ? svg : await renderPng(svg);
  try {
    await writeWhole(out, (pending) => Bun.write(pending, content));
  } catch (error) {
    throw new Error(`cannot write ${out}: ${(error as Error).message}; make room, or name another file`, {
      cause: error,
    });
  }
  console.log(`drew ${plural(metrics.length, "metric")} in ${out}`);
  return 0;
}

function metricsOf(text: string): MetricName[] {
  const names = text.split(",").map((name) => name.trim());
  const repeated = firstRepeated(names);
  if (repeated !== undefined) throw new UsageError(`--metrics names ${repeated} twice; leave one out`);
  return names.map((name) => runMetric(name, "--metrics"));
}

const PLACES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"].map(
  (name) => `/usr/bin/${name}`,
);

/** Pixels of the PNG for one pixel of the SVG, in each direction. */
const SCALE = 2;

/** @returns the bytes of a PNG, twice as wide and high as the SVG says. @throws {UsageError} if there is no Chromium */
async function renderPng(svg: string): Promise<Uint8Array> {
  const asked = process.env["BUNRAKU_CHROMIUM"];
  const path = [...(asked === undefined ? PLACES : [asked])].find((place) => existsSync(place));
  if (path === undefined) {
    throw new UsageError(
      `cannot write a PNG: no Chromium at ${asked ?? PLACES.join(", ")}; ` +
        "install it (Debian: apt-get install chromium), or write an .svg, which needs no browser",
    );
  }
  const { chromium } = await import("playwright-core");
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run"];
  await using browser = await chromium.launch({ executablePath: path, args }).catch((error: Error) => {
    throw new Error(`cannot write a PNG: ${path} did not start: ${error.message.split("\n")[0]}`, { cause: error });
  });
  const page = await browser.newPage({ deviceScaleFactor: SCALE });
  await page.setContent(`<style>body{margin:0}svg{display:block}</style>${svg}`);
  return await page.locator("svg").screenshot();
}
