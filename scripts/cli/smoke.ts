/**
 * `--smoke`: the smallest run of a config. It goes through everything that the run would (warm start, rollouts, updates, validation,
 * checkpoint) within about a minute, and learns nothing.
 */
import type { RunConfig } from "../../actors/config/config.ts";
import { plural } from "../../actors/number-text.ts";

const UPDATES = 2;
const TURNS = 2;
const REPLY_TOKENS = 16;
const WARM_START_STEPS = 4;

export function smokeConfig(config: RunConfig): RunConfig {
  const { env, rollout, sampler, envServer, warmStart, learner, validate } = config;
  const envs = Math.max(1, env.mix.length);
  return {
    ...config,
    env: {
      ...env,
      turnsMax: Math.min(env.turnsMax, TURNS),
      mix: env.mix.map((one) => ({ ...one, groups: null, turnsMax: Math.min(one.turnsMax ?? TURNS, TURNS) })),
    },
    rollout: {
      ...rollout,
      groups: Math.max(2, envs),
      groupSize: Math.min(rollout.groupSize, 2),
      onlineK: 1,
      curriculum: { ...rollout.curriculum, by: "none" },
      // Shorter replies could not imitate the demonstrations.
      replyTokensMax: warmStart.enabled ? rollout.replyTokensMax : Math.min(rollout.replyTokensMax, REPLY_TOKENS),
    },
    sampler: { ...sampler, count: Math.min(sampler.count, 1), slots: Math.min(sampler.slots, 4) },
    envServer: { ...envServer, count: Math.min(envServer.count, 1) },
    warmStart: {
      ...warmStart,
      boards: Math.min(warmStart.boards, 16),
      stages: warmStart.stages.map((stage) => ({
        ...stage,
        steps: Math.min(stage.steps, WARM_START_STEPS),
        batch: Math.min(stage.batch, 4),
        warmUpSteps: 0,
      })),
    },
    learner: {
      ...learner,
      updates: UPDATES,
      minutes: null,
      minibatch: null,
      resampleRoundsMax: 0,
      filter: { ...learner.filter, strategy: "all" },
    },
    validate: { ...validate, episodes: 2, groupSize: 1 },
  };
}

/** What a smoke run does, in one line. @param config  of `smokeConfig` */
export function smokeText({ env, rollout, learner }: RunConfig): string {
  const { groups, groupSize, replyTokensMax } = rollout;
  const episodes = `${plural(groups, "group")} of ${plural(groupSize, "episode")}`;
  const limits = `${plural(env.turnsMax, "turn")} and ${plural(replyTokensMax, "token")} a reply`;
  return `smoke run: ${plural(learner.updates, "update")} of ${episodes}, at most ${limits}; it shows that the config works, and learns nothing`;
}
