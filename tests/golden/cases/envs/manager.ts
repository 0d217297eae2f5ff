/** Golden case H7: several episodes side by side, from seeds to metrics. */

import { z } from "zod";
import { composeRunConfig } from "../../../../actors/config/compose.ts";
import type { RunConfig } from "../../../../actors/config/config.ts";
import { trainingTickets, validationTickets } from "../../../../actors/training/tickets-to-play.ts";
import type { EpisodeRules, Game, LocalEnv, Turn } from "../../../../envs/env.ts";
import { openEpisode } from "../../../../envs/episode.ts";
import { envTag } from "../../../../envs/registry.ts";
import { SokobanGame } from "../../../../envs/sokoban/game.ts";
import { shortestPath } from "../../../../envs/sokoban/solve.ts";
import { openLocal } from "../../../../envs/tag.ts";
import type { Check } from "../check.ts";

const Id = z.object({ env_id: z.number() });
const H7 = z.object({
  v1: z.object({
    config: z.object({
      tag: z.string(),
      env_groups: z.number(),
      group_size: z.number(),
      max_actions_per_traj: z.number(),
      format_penalty: z.number(),
      seed_train: z.uint32(),
    }),
    seeds: z.array(z.number()),
    initial: z.array(z.string()),
    steps: z.array(
      z.object({
        inputs: z.array(Id.extend({ actions: z.array(z.string()) })),
        active_env_ids: z.array(z.number()),
        per_env: z.array(Id.loose()),
      }),
    ),
    bfs: z.record(z.string(), z.array(z.number())),
    final_metrics: z.array(z.record(z.string(), z.number())),
    second_reset_seeds: z.array(z.number()),
    val_seeds: z.array(z.array(z.number())),
  }),
});
type Config = z.infer<typeof H7>["v1"]["config"];

interface OpenedEpisode {
  readonly game: Game;
  readonly env: LocalEnv;
  readonly solution: readonly number[] | undefined;
  readonly turns: Turn[];
}

export function environmentManager(body: unknown): Check[] {
  const { config, steps, ...expected } = H7.parse(body).v1;
  const run = runOf(config);
  const trained = (update: number) => trainingTickets(run, update, 0).map(({ layoutSeed }) => layoutSeed);
  const seeds = trained(0);
  const played = seeds.map((seed) => open(config, seed));
  const openings = played.map(({ env }) => env.opening);
  const solutions = Object.fromEntries(Object.keys(expected.bfs).map((id) => [id, played[Number(id)]?.solution]));
  const turns = steps.flatMap((step, i) => stepChecks(played, step, i));
  const validation = expected.val_seeds.map((_, i) =>
    validationTickets(run, `v${i}`, 1, 0).map(({ layoutSeed }) => layoutSeed),
  );
  return [
    { name: "seeds", expected: expected.seeds, got: seeds },
    { name: "initial", expected: expected.initial, got: openings },
    { name: "bfs", expected: expected.bfs, got: solutions },
    ...turns,
    { name: "final_metrics", expected: expected.final_metrics, got: metrics(config, played) },
    { name: "second_reset_seeds", expected: expected.second_reset_seeds, got: trained(1) },
    { name: "val_seeds", expected: expected.val_seeds, got: validation },
  ];
}

/** A run with the case's groups and first seed. The seeds are RAGEN's, so the rules of a config do not check this run. */
function runOf({ env_groups, group_size, seed_train }: Config): RunConfig {
  const run = composeRunConfig([]);
  return {
    ...run,
    rollout: { ...run.rollout, groups: env_groups, groupSize: group_size, firstSeed: seed_train },
    validate: { ...run.validate, episodes: env_groups, groupSize: group_size },
  };
}

function open(config: Config, seed: number): OpenedEpisode {
  const rules: EpisodeRules = {
    turnsMax: Number.POSITIVE_INFINITY,
    actionsMax: config.max_actions_per_traj,
    actionsPerTurnMax: Number.POSITIVE_INFINITY,
    formatPenalty: config.format_penalty,
    think: false,
  };
  const game = openLocal(envTag(config.tag, {}, "ragen-v1"), { layout: seed, dynamics: seed });
  const path = game instanceof SokobanGame ? shortestPath(game.board) : null;
  const solution = path?.map((action) => action + 1);
  return { game, env: openEpisode(game, rules), solution, turns: [] };
}

function stepChecks(
  played: readonly OpenedEpisode[],
  step: z.infer<typeof H7>["v1"]["steps"][number],
  index: number,
): Check[] {
  for (const { env_id, actions } of step.inputs) {
    const { env, turns } = played[env_id]!;
    turns.push(env.step(`<answer>${actions.join(" || ")}</answer>`));
  }
  const active = step.inputs.map(({ env_id }) => env_id).filter((id) => played[id]!.turns.at(-1)!.ending === null);
  return [
    { name: `step ${index + 1}: active_env_ids`, expected: step.active_env_ids, got: active },
    ...step.per_env.map((expected) => ({
      name: `step ${index + 1}: env ${expected.env_id}`,
      expected,
      got: { env_id: expected.env_id, ...stateOf(played[expected.env_id]!) },
    })),
  ];
}

/** RAGEN's record of an episode after its last turn. */
function stateOf({ game, turns }: OpenedEpisode) {
  const last = turns.at(-1)!;
  const known = game.kind === "discrete" ? game.actions : [];
  const ids = (names: readonly string[]) => names.map((name) => known.indexOf(name) + 1);
  return {
    reward: last.reward,
    executed: ids(last.actions),
    actions_left: last.actionsLeft,
    penalty: turns.reduce((sum, turn) => sum + turn.penalty, 0),
    terminated: last.ending !== null,
    truncated: last.ending !== null && last.ending !== "success",
    num_actions: turns.reduce((sum, turn) => sum + turn.actions.length, 0),
    next_state: last.observation,
  };
}

/** Metrics of actions are absent without actions. Source: RAGEN EnvStateManager.get_rollout_states. */
function metrics({ tag, group_size }: Config, played: readonly OpenedEpisode[]): Record<string, number>[] {
  const each = played.map(({ turns }) => {
    const success = Number(turns.at(-1)!.ending === "success");
    const num_actions = turns.reduce((sum, turn) => sum + turn.actions.length, 0);
    const action_is_effective = turns.filter(({ effective }) => effective).length / turns.length;
    const action_is_valid = turns.filter(({ valid }) => valid).length / turns.length;
    return { success, num_actions, ...(num_actions === 0 ? {} : { action_is_effective, action_is_valid }) };
  });
  return each.map((values, i) => {
    const first = i - (i % group_size);
    const group = each.slice(first, first + group_size);
    const named = { ...values, [`pass@${group_size}`]: Math.max(...group.map(({ success }) => success)) };
    return Object.fromEntries(Object.entries(named).map(([name, value]) => [`${tag}/${name}`, value]));
  });
}
