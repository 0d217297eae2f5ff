/** What a network can be asked to compute of written tokens, and to follow the gradient of. Types only. */
import type * as tf from "@tensorflow/tfjs-core";

/** What the network says of each written token, (B, W) each. */
export interface TokenScores {
  readonly logProbs: tf.Tensor;
  readonly entropies: tf.Tensor;
}

/** What a critic says of the state before each written token, (B, W). */
export interface ValueScores {
  readonly values: tf.Tensor;
}

interface Loss {
  readonly loss: tf.Scalar;
  readonly metrics: Readonly<Record<string, tf.Scalar>>;
}

/** What a network says of a token, or of the state before it. A network may have both heads. */
export type Head = "tokens" | "value";

interface ObjectiveOf<H extends Head, Scores> {
  /** Which networks it is for. */
  readonly head: H;
  /** Names the compiled function; equal names must mean equal functions. */
  readonly name: string;
  /** Per-token inputs, (B, W) each, besides the tokens themselves. */
  readonly inputs: readonly string[];
  readonly loss: (scores: Scores, inputs: Readonly<Record<string, tf.Tensor>>) => Loss;
}

/** A loss over written tokens. Losses and metrics are sums, so that those of micro-batches add up to the minibatch's. */
export type Objective = ObjectiveOf<"tokens", TokenScores> | ObjectiveOf<"value", ValueScores>;

/** Per-token values of every sequence, by input name: [sequence][written token]. */
export type TokenInputs = Readonly<Record<string, readonly ArrayLike<number>[]>>;
