/** What RAGEN reports of finished episodes. Source: RAGEN EnvStateManager.get_rollout_states. */
import type { Turn } from "./env.ts";

export interface EpisodeMetrics {
  /** 1 if the episode ended in success. */
  readonly success: number;
  /** Executed actions. */
  readonly num_actions: number;
  /** Share of turns whose last action changed the state; a turn without actions counts as none. */
  readonly action_is_effective: number;
  readonly action_is_valid: number;
}

/** @throws {RangeError} for an episode without turns. */
export function episodeMetrics(turns: readonly Turn[]): EpisodeMetrics {
  if (turns.length === 0) throw new RangeError("an episode needs at least one turn, found none");
  const share = (holds: (turn: Turn) => boolean) => turns.filter(holds).length / turns.length;
  return {
    success: turns.at(-1)!.ending === "success" ? 1 : 0,
    num_actions: turns.reduce((sum, turn) => sum + turn.actions.length, 0),
    action_is_effective: share((turn) => turn.effective),
    action_is_valid: share((turn) => turn.valid),
  };
}

/** 1 if any episode of the group succeeded. */
export function passAtGroup(group: readonly Pick<EpisodeMetrics, "success">[]): number {
  return group.some(({ success }) => success === 1) ? 1 : 0;
}
