/** A real run in one thread rolls back to a healthy checkpoint: its policy, optimizer and log, and how it resumes. */
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { HealthConfig } from "../../../actors/config/health.ts";
import type { MetricName } from "../../../actors/metrics/metrics.ts";
import type { Progress } from "../../../actors/training/progress.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { startOneThread, tinyConfig } from "../supervisor/tiny-run.ts";

const folder = temporaryFolder();

/** Every update counts as collapsed once the start is over: a share of constant groups of 0 is already too much. */
function trappedConfig(at: string): RunConfig {
  const config = tinyConfig(at, { samplers: 1, updates: 6, warmStart: "shared" });
  const health = HealthConfig.parse({
    ladder: ["roll-back", "lower-step-size"],
    settleUpdates: 2,
    collapse: { everyUpdates: 2, samples: 4 },
    trap: {
      startUpdates: 2,
      patience: 1,
      constantGroups: 0,
      explainedAt: 1,
      solvedAt: 1,
      successFall: 1,
    },
  });
  const kl = { ...config.learner.kl, coefficient: 0.01 };
  return {
    ...config,
    learner: { ...config.learner, kl },
    checkpoint: { ...config.checkpoint, everyUpdates: 2 },
    health,
  };
}

/** The health events of a run. */
const SIGNS = [
  "train/in_group_std",
  "train/zero_std_groups",
  "train/entropy",
  "train/grad_norm",
  "train/staleness",
  "train/reply_tokens",
  "train/think_tokens",
  "train/thinking_rate",
  "train/repetition",
  "train/valid",
  "train/effective",
  "train/format_errors",
  "loss/clip_fraction_high",
  "loss/clip_fraction_low",
  "loss/kl",
  "loss/ratio_kl",
  "health/verdict",
  "health/interventions",
  "health/rollbacks",
  "collapse/mi_estimate",
  "collapse/mi_zscore_ema",
  "collapse/retrieval_accuracy_at_2",
  "collapse/conditional_entropy_est",
  "collapse/reasoning_entropy_est",
  "collapse/first_mi_estimate",
  "validate/fail_invalid_format",
  "validate/fail_premature_stop",
  "validate/fail_budget",
] as const satisfies readonly MetricName[];

async function runIn(at: string): Promise<void> {
  const end = await startOneThread({
    run: "trapped",
    folder: at,
    config: trappedConfig(folder),
    event: () => {},
    output: () => {},
  }).then((cluster) => cluster.ended);
  expect(end).toMatchObject({ ok: true });
}

test("rolls back once, with other coins, and logs why; equal seeds do the same", async () => {
  const [one, two] = [temporaryFolder(), temporaryFolder()];
  await runIn(one);
  await runIn(two);

  const db = new Database(join(one, "run.sqlite"), { readonly: true });
  const events = db.query("SELECT text FROM events WHERE kind = 'intervention'").all() as { text: string }[];
  expect(events[0]!.text).toMatch(
    /^update 3: roll-back \(rung 1 of 2\): back to the last healthy checkpoint; collapsed: groups hardly differ/,
  );
  expect(events[1]!.text).toMatch(/^update \d: lower-step-size \(rung 2 of 2\)/);
  const played = (
    db
      .query(
        "SELECT DISTINCT substr(episode, 1, instr(episode, '.') - 1) AS batch FROM episodes WHERE purpose = 'train'",
      )
      .all() as {
      batch: string;
    }[]
  ).map(({ batch }) => batch);
  expect(played).toEqual(["u0", "u1", "u2", "u2r1", "u3r1", "u4r1", "u5r1"]);
  // The weights are those that update 2 had led to, for samplers and learner alike.
  const digests = (batch: string) =>
    db.query("SELECT DISTINCT digest FROM episodes WHERE episode LIKE ?").all(`${batch}.%`) as { digest: string }[];
  expect(digests("u2").length).toBe(1);
  expect(digests("u2r1")).toEqual(digests("u2"));
  const gaps = db.query("SELECT value FROM metrics WHERE name = 'train/log_prob_gap'").all() as { value: number }[];
  expect(Math.max(...gaps.map(({ value }) => value))).toBeLessThan(1e-4);
  const recorded = db.query("SELECT DISTINCT name FROM metrics").all() as { name: string }[];
  const names = new Set(recorded.map(({ name }) => name));
  expect(SIGNS.filter((name) => !names.has(name))).toEqual([]);
  db.close();

  // A resumed run continues after the roll-back, without the updates that were given up.
  const checkpoints = readdirSync(join(one, "checkpoints")).sort();
  const saved = await loadCheckpoint(join(one, "checkpoints", checkpoints.at(-1)!));
  const { update, health } = saved.state as Progress;
  expect([update, health.control.round, health.taken]).toEqual([6, 1, 2]);

  const policy = (at: string) => readFileSync(join(at, "checkpoints", checkpoints.at(-1)!, "policy.safetensors"));
  expect(policy(one).equals(policy(two))).toBe(true);
}, 300_000);
