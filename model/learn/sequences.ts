/**
 * An episode as the network sees it: one sequence per context. Everything an episode earns, and every advantage, belongs to the
 * whole episode; only what predicts a token is bounded by the token's context.
 *
 * So estimators and aggregation get one row per episode, with the written tokens of all its contexts in order, and the network gets
 * samples. `cut` and `join` go between the two.
 *
 * Source: RAGEN-2's turn-level samples (context_window_mode), where each carries the episode's id and its reward.
 */

import type { Trajectory } from "../trajectory.ts";
import type { Sequence } from "./batch.ts";

/** The samples of one episode. */
export type Samples = readonly Sequence[];

/**
 * (C) one sequence per context.
 *
 * @throws {RangeError} if the contexts do not begin at 0, or do not ascend within the tokens.
 */
export function samplesOf({ tokens, written, contexts }: Pick<Trajectory, "tokens" | "written" | "contexts">): Samples {
  const bounds = [...contexts, tokens.length];
  const ascend = bounds.every((bound, i) => i === 0 || (Number.isInteger(bound) && bound > bounds[i - 1]!));
  if (contexts[0] !== 0 || !ascend) {
    throw new RangeError(
      `contexts must begin at 0 and ascend within ${tokens.length} tokens, got ${contexts.join(", ")}`,
    );
  }
  return contexts.map((start, i) => {
    const mask = written.subarray(start, bounds[i + 1]);
    return {
      tokens: tokens.subarray(start, bounds[i + 1]),
      written: Int32Array.from(mask.keys().filter((at) => mask[at] === 1)),
    };
  });
}

/** Values of each episode's written tokens, as values of each sample's, in the order of `samples.flat()`. */
export function cut(samples: readonly Samples[], values: readonly ArrayLike<number>[]): Float32Array[] {
  return samples.flatMap((own, episode) => {
    const all = Float32Array.from(values[episode]!);
    let at = 0;
    return own.map(({ written }) => {
      const start = at;
      at += written.length;
      return all.subarray(start, at);
    });
  });
}

/** Values of each sample's written tokens, in the order of `samples.flat()`, as values of each episode's. */
export function join(samples: readonly Samples[], values: readonly ArrayLike<number>[]): Float32Array[] {
  let next = 0;
  return samples.map((own) => Float32Array.from(own.flatMap(() => Array.from(values[next++]!))));
}
