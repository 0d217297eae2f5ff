/** A real Prometheus scrapes a real run: names, help, types and values arrive, and the Grafana dashboard asks for what there is. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { prometheusName } from "../../actors/dashboard/prometheus.ts";
import { METRIC_NAMES, metric } from "../../actors/metrics/metrics.ts";
import { describeWhere } from "../needs.ts";
import { root } from "../scripts/command.ts";
import { LONG, RunProcess, Runs } from "./run-process.ts";

setDefaultTimeout(LONG);

const prometheus = Bun.which("prometheus");
const promtool = Bun.which("promtool");
const there = prometheus !== null && promtool !== null;

const TOKEN = "a-token-that-prometheus-sends";
const runs = new Runs("shared");

interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

describeWhere(there ? null : "no prometheus and promtool", "Prometheus", () => {
  let run: RunProcess;
  let page: string;
  let server: Bun.Subprocess;
  let api: string;

  beforeAll(async () => {
    const { folder, args } = runs.fresh({
      learner: { updates: 100_000 },
      sampler: { count: 2 },
      metrics: { port: 0, token: TOKEN },
    });
    run = new RunProcess(folder, args);
    page = (await run.entry(({ kind }) => kind === "page")).text!;
    const home = join(runs.folder, "prometheus");
    mkdirSync(home);
    // As docs/operations.md says, but more often.
    writeFileSync(join(home, "token"), TOKEN);
    const job = {
      job_name: "bunraku",
      authorization: { credentials_file: join(home, "token") },
      static_configs: [{ targets: [new URL(page).host] }],
    };
    const times = { scrape_interval: "250ms", scrape_timeout: "250ms" };
    writeFileSync(join(home, "prometheus.yml"), JSON.stringify({ global: times, scrape_configs: [job] }));
    const free = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const address = `127.0.0.1:${free.port}`;
    free.stop();
    api = `http://${address}/api/v1/`;
    server = Bun.spawn(
      [
        prometheus!,
        `--config.file=${join(home, "prometheus.yml")}`,
        `--storage.tsdb.path=${join(home, "data")}`,
        `--web.listen-address=${address}`,
      ],
      { stdio: ["ignore", "ignore", "ignore"] },
    );
    await run.updated(2);
  });
  afterAll(async () => {
    server.kill();
    run.kill("SIGINT");
    await Promise.all([server.exited, run.ended]);
  });

  async function ask<T>(path: string): Promise<T> {
    const answer = await fetch(`${api}${path}`);
    const { status, data, error } = (await answer.json()) as { status: string; data: T; error?: string };
    if (status !== "success") throw new Error(`${path}: ${error}`);
    return data;
  }
  const query = async (expression: string) =>
    (await ask<{ result: Sample[] }>(`query?query=${encodeURIComponent(expression)}`)).result;

  /** Polls until it was scraped: Prometheus sends no event. */
  async function scraped(expression: string): Promise<Sample[]> {
    for (;;) {
      const samples = await query(expression).catch(() => []);
      if (samples.length > 0) return samples;
      await Bun.sleep(50);
    }
  }

  test("scrapes it with its token, and has its values", async () => {
    expect((await scraped("up{job='bunraku'} == 1")).length).toBe(1);
    const [updates] = await scraped("bunraku_updates_total >= 2");
    expect(updates!.metric).toMatchObject({ run: basename(run.folder), job: "bunraku" });
    const [success] = await scraped("bunraku_baseline_random");
    const { success: known } = (await (
      await fetch(`${page}api/run`, { headers: { Authorization: `Bearer ${TOKEN}` } })
    ).json()) as { success: { random: number } };
    expect(Number(success!.value[1])).toBe(known.random);
    const actors = (await scraped("bunraku_process_rss_bytes > 1e6")).map(({ metric: { actor } }) => actor);
    expect(actors.sort()).toEqual(["env-server-0", "learner", "metrics-sink", "sampler-0", "sampler-1"]);
    await scraped(`bunraku_updates_total > ${updates!.value[1]}`);
  });

  test("knows what each metric means, as the table says it", async () => {
    await scraped("bunraku_updates_total");
    const known = await ask<Record<string, { type: string; help: string }[]>>("metadata");
    for (const name of METRIC_NAMES) {
      const [row] = known[prometheusName(name)] ?? [];
      expect([name, row?.type, row?.help.startsWith(metric(name).help)]).toEqual([name, metric(name).kind, true]);
    }
  });

  test("promtool has nothing to say against its form", async () => {
    const answer = await fetch(`${page}metrics`, { headers: { Authorization: `Bearer ${TOKEN}` } });
    const check = Bun.spawn([promtool!, "check", "metrics"], {
      stdin: new Blob([await answer.text()]),
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, err, code] = await Promise.all([check.stdout.text(), check.stderr.text(), check.exited]);
    expect({ out, err, code }).toEqual({ out: "", err: "", code: 0 });
  });

  test("understands every question of docs/grafana.json, and has heard of every metric in it", async () => {
    await scraped("bunraku_updates_total");
    const { panels } = JSON.parse(readFileSync(join(root, "docs/grafana.json"), "utf8")) as {
      panels: { title: string; gridPos: { x: number; w: number }; targets: { expr: string }[] }[];
    };
    const expressions = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    expect(expressions.length).toBeGreaterThan(20);
    const names = new Set(METRIC_NAMES.map(prometheusName));
    for (const expression of expressions) {
      await query(expression.replaceAll("$run", ".*"));
      for (const [name] of expression.matchAll(/bunraku_\w+/g)) expect([name, names.has(name)]).toEqual([name, true]);
    }
    for (const { title, gridPos } of panels) expect([title, gridPos.x + gridPos.w <= 24]).toEqual([title, true]);
    expect((await query('bunraku_time_tickets{run=~".*"}')).length).toBe(2);
  });
});
