/** An update with equal episodes against a float64 reference, which computes each episode. */
import { expect, test } from "bun:test";
import type { UpdateSettings } from "../../../../model/learn/update/types.ts";
import { update } from "../../../../model/learn/update/update.ts";
import { farthest } from "../../farthest.ts";
import { tinyParameters } from "../../policy/tiny-policy.ts";
import { referenceUpdate } from "./reference-update.ts";
import { model, networks, play, rewards, settings, start } from "./stage.ts";

const far = tinyParameters(model, 2).flat;
const other = start.map((value, i) => value + (far[i]! - value) / 20);
const { policy } = settings;
const gspo = { ...policy, rule: { kind: "gspo", clipLow: 0.05, clipHigh: 0.06 } } as const;
const reinforce = { ...policy, rule: { kind: "reinforce" } } as const;

const cases: [string, UpdateSettings, boolean][] = [
  ["as they are", settings, false],
  ["with a KL term", { ...settings, policy: { ...policy, kl: { estimator: "k3", coefficient: 0.3 } } }, true],
  ["with importance weights", { ...settings, importance: { level: "sequence", cap: 1.1 } }, true],
  ["with KL-Cov of one token", { ...settings, covariance: { treatment: "kl", share: 1e-9, coefficient: 5 } }, false],
  ["by gspo, with an observation loss", { ...settings, policy: gspo, observationLoss: 0.3 }, false],
  ["by tpo", { ...settings, aggregation: "seq-mean-token-mean", policy: reinforce, estimator: { kind: "tpo" } }, false],
];

test.each(cases)("counts each of equal episodes, which the network computes once, %s", async (_, given, forgetful) => {
  const played = play(start, rewards, 3, { forgetful });
  // The third member of each group plays what the first played.
  const repeated = played.map((episode, i) => (i % 3 === 2 ? played[i - 2]! : episode));
  const all = await networks(start, { reference: other });
  const { metrics } = await update(all, repeated, given);
  const { gradientNorm, parameters } = referenceUpdate(model, start, other, repeated, given);
  expect(metrics["gradNorm"]! / gradientNorm).toBeCloseTo(1, 5);
  expect(farthest(all.parameters.flat, parameters)).toBeLessThan(2e-6);
});
