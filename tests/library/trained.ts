/** A run of one update on Bandit, made by `train`. */
import { train } from "../../library/train.ts";

/** @param folder  the run's; it need not exist */
export async function trainOnce(folder: string): Promise<void> {
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
}
