/** Makes the tickets of an update and of a validation. All functions are pure. */
import { dynamicsSeed } from "../../envs/seeds.ts";
import type { RunConfig } from "../config/config.ts";
import { boardsPerUpdate, episodeRules, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import type { Ticket } from "../protocol.ts";
import { groupEnvs } from "./curriculum.ts";

/** A group to play: its number in the update, and its env. */
export interface WantedGroup {
  readonly group: number;
  readonly env: string;
}

export const wantedGroups = (envs: readonly string[]): WantedGroup[] => envs.map((env, group) => ({ group, env }));

/**
 * Prefix of the episode names of an update ("u12") or a validation ("v12"). An episode's name decides the episode's coins: the random
 * numbers that choose its tokens.
 *
 * @param round  number of roll-backs so far
 */
export const batchName = (purpose: "u" | "v", update: number, round: number): string =>
  `${purpose}${update}${round === 0 ? "" : `r${round}`}`;

/** Seed of an env's random events. With compat strict, and in RAGEN-2's Bandit, each member has its own seed. Otherwise a group shares a seed. */
function dynamicsOf(config: RunConfig, env: string, layoutSeed: number, member: number): number {
  const shared = config.prompt.compat !== "strict" && tagOf(config, env).config["sharedStream"] !== false;
  return shared ? layoutSeed : dynamicsSeed(layoutSeed, member);
}

/**
 * The tickets of one update: `rollout.groupSize` tickets for each wanted group. The update and the group's number decide the board.
 *
 * @param update   the first update has number 0
 * @param version  oldest policy version that may play the tickets; in sync mode the only version
 * @param round    number of roll-backs so far
 * @param wanted   may contain extra groups: replacements (rollout-queue.ts), or groups for the gradient analysis (`measureGradients`)
 * @param actions  a ticket allows this share of the configured actions per turn, and at least one action
 */
export function trainingTickets(
  config: RunConfig,
  update: number,
  version: number,
  round = 0,
  wanted: readonly WantedGroup[] = wantedGroups(groupEnvs(config)),
  actions = 1,
): Ticket[] {
  const { groupSize, firstSeed, temperature, topP, topK } = config.rollout;
  const exact = config.learner.mode === "sync";
  const name = batchName("u", update, round);
  return wanted.flatMap(({ group, env }) => {
    const layoutSeed = firstSeed + update * boardsPerUpdate(config) + group;
    return Array.from({ length: groupSize }, (_, member) => ({
      episode: `${name}.g${group}.m${member}`,
      purpose: "train" as const,
      group,
      member,
      env,
      layoutSeed,
      dynamicsSeed: dynamicsOf(config, env, layoutSeed, member),
      temperature,
      topP,
      topK,
      version,
      exact,
      attempt: 0,
      ...(actions < 1 ? { actionsPerTurnMax: fewerActions(config, env, actions) } : {}),
    }));
  });
}

function fewerActions(config: RunConfig, env: string, share: number): number {
  const { actionsPerTurnMax } = episodeRules(config, env, tagOf(config, env));
  return Math.max(1, Math.floor(actionsPerTurnMax * share));
}

/**
 * The tickets of one validation. All validations play the same boards of each env, with `validate.groupSize` tries on each board.
 *
 * @param name  unique among the run's validations at this temperature
 */
export function validationTickets(config: RunConfig, name: string, temperature: number, version: number): Ticket[] {
  const { episodes, groupSize, firstSeed } = config.validate;
  const envs = playedEnvs(config);
  return Array.from({ length: envs.length * episodes * groupSize }, (_, i) => {
    const group = Math.floor(i / groupSize);
    const member = i % groupSize;
    const layoutSeed = firstSeed + (group % episodes);
    const env = envs[Math.floor(group / episodes)]!.name;
    return {
      // The first try has the same name, and so the same coins, for every `groupSize`.
      episode: `${name}.t${temperature}.b${group}${member === 0 ? "" : `.m${member}`}`,
      purpose: "validate" as const,
      group,
      member,
      env,
      layoutSeed,
      dynamicsSeed: dynamicsOf(config, env, layoutSeed, member),
      temperature,
      topP: 1,
      topK: 0,
      version,
      exact: true,
      attempt: 0,
    };
  });
}
