/**
 * Each reasoning scored under its own prompt and under the others', by teacher forcing: what mutual-information.ts measures
 * collapse from. Knows no episode; which turns are compared is the caller's choice.
 *
 * - N reasonings under M distinct prompts cost N * M scored rows of prompt and reasoning together.
 *
 * Source: RAGEN-2, https://arxiv.org/abs/2604.06268, CollapseDetector.
 */
import { type BatchLimits, microBatches, type Sequence } from "../learn/batch.ts";
import type { Network } from "../learn/network.ts";
import { type CrossScores, pairUp } from "./mutual-information.ts";

/** A turn's reasoning and what it was written after. */
export interface Reasoned {
  /** Everything before the first token of the reasoning, at least one token. */
  readonly prompt: Int32Array;
  /** At least one token; without the token that closes it. */
  readonly reasoning: Int32Array;
}

/** @throws {RangeError} if there is no turn, or one without prompt or reasoning. */
export async function crossScores(
  network: Pick<Network, "score">,
  turns: readonly Reasoned[],
  limits: BatchLimits,
  temperature: number,
): Promise<CrossScores> {
  turns.forEach(({ prompt, reasoning }, i) => {
    if (prompt.length > 0 && reasoning.length > 0) return;
    throw new RangeError(`turn ${i} has ${prompt.length} tokens of prompt and ${reasoning.length} of reasoning`);
  });
  const { columns, rows, own } = pairUp(
    turns.map(({ prompt }) => prompt.join(" ")),
    Math.max(1, turns.length),
  );
  const sequences = rows.flatMap((row) =>
    columns.map((column) => joined(turns[column]!.prompt, turns[row]!.reasoning)),
  );
  const { logProbs } = await network.score(microBatches(sequences, limits), temperature);
  const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    perToken: rows.map((_, i) => columns.map((_, j) => mean(logProbs[i * columns.length + j]!))),
    lengths: rows.map((row) => turns[row]!.reasoning.length),
    own,
  };
}

function joined(prompt: Int32Array, reasoning: Int32Array): Sequence {
  const tokens = new Int32Array(prompt.length + reasoning.length);
  tokens.set(prompt);
  tokens.set(reasoning, prompt.length);
  return { tokens, written: Int32Array.from(reasoning, (_, i) => prompt.length + i) };
}
