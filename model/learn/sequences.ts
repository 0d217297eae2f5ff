/**
 * An episode as the network sees it: one sequence per context.
 *
 * Rewards and advantages belong to the whole episode, so estimators and aggregation get one row per episode: the written tokens of all
 * its contexts in order. The network predicts a token from the token's own context alone, so it gets one sample per context.
 *
 * Source: RAGEN-2's turn-level samples (context_window_mode), where each sample carries its episode's id and reward.
 */
import type { Trajectory } from "../trajectory.ts";
import type { Rows } from "./advantage/rows.ts";
import type { Sequence } from "./batch.ts";

/** The samples of one episode. */
export type Samples = readonly Sequence[];

/** (C) one sequence per context. `trajectoryFault` has checked that the contexts begin at 0 and ascend within the tokens. */
export function samplesOf({ tokens, written, contexts }: Pick<Trajectory, "tokens" | "written" | "contexts">): Samples {
  return contexts.map((start, i) => {
    const end = contexts[i + 1] ?? tokens.length;
    const positions: number[] = [];
    for (let at = start; at < end; at++) if (written[at] === 1) positions.push(at - start);
    return { tokens: tokens.subarray(start, end), written: new Int32Array(positions) };
  });
}

/** Splits values of each episode's written tokens by sample, in the order of `samples.flat()`. */
export function splitBySample(samples: readonly Samples[], values: readonly ArrayLike<number>[]): Float32Array[] {
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

/** Joins values of each sample's written tokens, in the order of `samples.flat()`, by episode. */
export function joinByEpisode(samples: readonly Samples[], values: readonly ArrayLike<number>[]): Float32Array[] {
  let next = 0;
  return samples.map((own) => Float32Array.from(own.flatMap(() => Array.from(values[next++]!))));
}

/** (B, W): one row per episode, the written tokens of all its contexts left-aligned. */
export interface EpisodeRows extends Rows {
  /** (B)(written tokens) to (B, W), padded with 0. */
  lay(values: readonly ArrayLike<number>[]): Float32Array;
  /** (B, W) to (B)(written tokens). */
  split(laid: Float32Array): Float32Array[];
}

export function episodeRows(samples: readonly Samples[]): EpisodeRows {
  const lengths = samples.map((own) => own.reduce((sum, { written }) => sum + written.length, 0));
  const width = Math.max(...lengths);
  const written = new Uint8Array(lengths.length * width);
  for (const [row, length] of lengths.entries()) written.fill(1, row * width, row * width + length);
  return {
    width,
    written,
    lay(values) {
      const padded = new Float32Array(written.length);
      for (const [row, own] of values.entries()) padded.set(own as Float32Array, row * width);
      return padded;
    },
    split: (padded) => lengths.map((length, row) => padded.slice(row * width, row * width + length)),
  };
}
