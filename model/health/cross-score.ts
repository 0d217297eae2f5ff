/**
 * Scores each reasoning (RAGEN-2's word for a thought) by teacher forcing, under its own prompt and under the prompts of the other
 * reasonings. mutual-information.ts reads these scores. This file knows no episode; the caller chooses the turns.
 *
 * - For M reasonings under N distinct prompts the network scores M * N rows. Each row is a prompt and a reasoning.
 *
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268, CollapseDetector.
 */
import type { BatchLimits, Sequence } from "../learn/batch.ts";
import type { Network } from "../learn/network.ts";
import { mean } from "../statistics.ts";
import type { CrossScores } from "./mutual-information.ts";

/** The reasoning of a turn with its prompt. */
export interface Reasoned {
  /** All tokens before the reasoning, at least one. */
  readonly prompt: Int32Array;
  /** At least one token; without the token that closes the thought. */
  readonly reasoning: Int32Array;
}

export async function crossScores(
  network: Pick<Network, "score">,
  turns: readonly Reasoned[],
  limits: BatchLimits,
  temperature: number,
): Promise<CrossScores> {
  // Identical prompts share a column. A column is named by the first turn with its prompt.
  const prompts = turns.map(({ prompt }) => prompt.join(" "));
  const distinct = [...new Set(prompts)];
  const columns = distinct.map((prompt) => prompts.indexOf(prompt));
  const sequences = turns.flatMap(({ reasoning }) => columns.map((column) => joined(turns[column]!.prompt, reasoning)));
  const { logProbs } = await network.score(sequences, limits, temperature);
  return {
    perToken: turns.map((_, i) => columns.map((_, j) => mean(logProbs[i * columns.length + j]!))),
    lengths: turns.map(({ reasoning }) => reasoning.length),
    own: prompts.map((prompt) => distinct.indexOf(prompt)),
  };
}

function joined(prompt: Int32Array, reasoning: Int32Array): Sequence {
  const tokens = new Int32Array(prompt.length + reasoning.length);
  tokens.set(prompt);
  tokens.set(reasoning, prompt.length);
  return { tokens, written: Int32Array.from(reasoning, (_, i) => prompt.length + i) };
}
