/** A saved policy as a program uses it: several calls at once. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { loadPolicy } from "../../library/policy.ts";
import { train } from "../../library/train.ts";
import { removeTemporaryFolders, temporaryFolder } from "../scripts/temporary.ts";

afterAll(removeTemporaryFolders);

const folder = join(temporaryFolder(), "mine");

beforeAll(async () => {
  const run = await train(
    {
      env: { tag: "Bandit" },
      rollout: { groups: 2, groupSize: 2 },
      sampler: { count: 1, slots: 4 },
      model: { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 16 },
      warmStart: { enabled: false },
      learner: { updates: 1, filter: { strategy: "all" } },
      validate: { episodes: 2 },
      engine: { threads: 1 },
    },
    { folder },
  );
  await run.ended;
}, 60_000);

test("episodes, evaluations and replies at once give what they give one after another", async () => {
  using policy = await loadPolicy(folder, { slots: 2 });
  const reply = () => policy.reply([{ role: "user", content: "1 left" }], { seed: 7 });
  const rewards = async (seed: number) => (await policy.evaluate({ episodes: 3, seed })).get("Bandit")!.meanReward;
  const episode = async (seed: number) => (await policy.episode(null, seed)).turns.map(({ reply }) => reply);
  const alone = [await episode(1), await episode(2), await rewards(5), await rewards(90), await reply()];
  const replies = Array.from({ length: 3 }, reply);
  const [first, ...more] = await Promise.all([
    Promise.all([episode(1), episode(2), rewards(5), rewards(90), reply()]),
    ...replies,
  ]);
  expect(first).toEqual(alone as typeof first);
  expect(new Set(more)).toEqual(new Set([alone.at(-1) as string]));
});
