/**
 * The env's tokens as targets beside the policy's own: those after the first reply of a context. The forward pass reads them
 * already. A context's first prompt is no target: no action of the policy led to it.
 *
 * Source: ECHO, https://arxiv.org/abs/2605.24517.
 */
import type { Sequence } from "../batch.ts";
import type { TokenInputs } from "../objective.ts";

export interface WithObservations {
  readonly sequences: readonly Sequence[];
  readonly inputs: TokenInputs;
  /** Number of the env's tokens among the targets. */
  readonly observed: number;
}

/**
 * Widens sequences and inputs by the env's tokens. At these tokens every input is 0, and `observationWeights` is
 * coefficient / observed. So the term is the coefficient times the mean cross-entropy of the env's tokens in the minibatch.
 *
 * @param inputs [sequence][written token]
 */
export function withObservations(
  sequences: readonly Sequence[],
  inputs: TokenInputs,
  coefficient: number,
): WithObservations {
  const wide = sequences.map(({ tokens, written }) => ({
    tokens,
    written: Int32Array.from({ length: tokens.length - written[0]! }, (_, i) => written[0]! + i),
  }));
  const observed = wide.reduce((sum, { written }, i) => sum + written.length - sequences[i]!.written.length, 0);
  const spread = (values: ArrayLike<number>, i: number, elsewhere: number) => {
    const laid = new Float32Array(wide[i]!.written.length).fill(elsewhere);
    const { written } = sequences[i]!;
    for (const [at, position] of written.entries()) laid[position - written[0]!] = values[at]!;
    return laid;
  };
  const widened = Object.entries(inputs).map(
    ([name, values]) => [name, values.map((row, i) => spread(row, i, 0))] as const,
  );
  const weights = sequences.map(({ written }, i) =>
    spread(new Float32Array(written.length), i, coefficient / Math.max(1, observed)),
  );
  return { sequences: wide, inputs: { ...Object.fromEntries(widened), observationWeights: weights }, observed };
}
