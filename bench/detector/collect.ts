/**
 * Writes every update of a sweep's finished runs as one Parquet file, which rates.ts reads:
 *
 *   bun bench/detector/collect.ts SWEEP_FOLDER OUT.parquet
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { RecordedRun } from "../../actors/record/recorded-run.ts";
import { named, type Row, writeParquet } from "../../scripts/export/tables.ts";
import { METRICS } from "./logs.ts";

const [sweep, out] = process.argv.slice(2);
if (sweep === undefined || out === undefined) throw new Error("usage: collect.ts SWEEP_FOLDER OUT.parquet");
const finished = readdirSync(sweep)
  .sort()
  .filter((name) => existsSync(join(sweep, name, "report.json")));
const columns = [...named("STRING", "run", "env"), ...named("INT32", "seed", "update"), ...named("DOUBLE", ...METRICS)];
await writeParquet(out, columns, rows());
console.log(`${finished.length} runs`);

function* rows(): Generator<Row> {
  for (const name of finished) {
    const folder = join(sweep!, name);
    const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as {
      readonly env: { readonly tag: string };
      readonly seed: number;
    };
    const record = new RecordedRun(folder);
    const values = new Map(METRICS.map((metric) => [metric, valuesByUpdate(record, metric)]));
    for (const update of [...values.get("train/success")!.keys()].sort((a, b) => a - b)) {
      const measured = METRICS.map((metric) => [metric, values.get(metric)!.get(update) ?? null] as const);
      yield { run: name, env: config.env.tag, seed: config.seed, update, ...Object.fromEntries(measured) };
    }
    record.close();
  }
}

function valuesByUpdate(record: RecordedRun, metric: (typeof METRICS)[number]): Map<number, number> {
  const curve = record.curve(metric);
  return new Map(curve?.steps.map((step, i) => [step, curve.values[i]!]));
}
