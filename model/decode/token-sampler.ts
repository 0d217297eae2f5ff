/**
 * Samples a token from a row of logits with a given coin (a random number from [0, 1)). It knows no engine and no stop rules.
 *
 * - The log-probability is that of softmax(logits / temperature) before top-p and top-k, because the learner recomputes this number.
 *   With top-p or top-k, tokens come from a sharper distribution than the log-probabilities say. By default training runs use neither.
 * - At temperature 0 the sampler takes the most likely token; of equally likely tokens, the one with the lowest id. The log-probability
 *   is then that of softmax(logits).
 * - Sums are float64 in a fixed order, so equal logits and coins give equal tokens and log-probabilities, bit for bit.
 * - It allocates nothing per token.
 */

export interface SampleSettings {
  /** At least 0; 0 is greedy. */
  readonly temperature: number;
  /** In (0, 1]: keep the fewest most likely tokens that together have at least this probability (after top-k). 1 keeps all. */
  readonly topP: number;
  /** Keep this many most likely tokens; 0 keeps all. */
  readonly topK: number;
}

export interface Sampled {
  token: number;
  /** Natural log; 0 or less. */
  logProb: number;
}

export class TokenSampler {
  /** V */
  readonly #vocab: number;
  /** (V) exp((logit - largest logit) / temperature). */
  readonly #weights: Float64Array;
  /** (V) token ids: a heap with the likeliest on top; after the heap the popped ids, the likeliest last. */
  readonly #heap: Uint32Array;
  #heapSize = 0;
  /** What belongs to `#weights`: the likeliest token, the temperature, and the sum of the weights. */
  #best = 0;
  #temperature = Number.NaN;
  #total = 0;
  readonly #sampled: Sampled = { token: 0, logProb: 0 };

  constructor(vocab: number) {
    this.#vocab = vocab;
    this.#weights = new Float64Array(vocab);
    this.#heap = new Uint32Array(vocab);
  }

  /**
   * @param logits  holds the row at `[offset, offset + V)`.
   * @param coin    in [0, 1).
   * @param sameRow  true if the last call sampled from the same row. If the temperature is the same too, the sampler reuses the weights.
   * @returns an object that the next call overwrites.
   * @throws {RangeError} if a setting is out of its range. @throws {Error} if a logit of the row is not finite.
   */
  sample(
    logits: Float32Array,
    offset: number,
    coin: number,
    settings: SampleSettings,
    sameRow = false,
  ): Readonly<Sampled> {
    const { temperature, topP, topK } = settings;
    // Forget the weights first: if this call throws, a later call must not reuse the weights of an earlier row.
    if (!sameRow) this.#temperature = Number.NaN;
    const inRange = temperature >= 0 && topP > 0 && topP <= 1 && topK >= 0 && Number.isInteger(topK);
    if (!inRange || !(coin >= 0 && coin < 1)) {
      throw new RangeError(
        `cannot sample with temperature ${temperature}, topP ${topP}, topK ${topK}, coin ${coin}; allowed are ` +
          "temperature >= 0, topP in (0, 1], topK a whole number >= 0, coin in [0, 1)",
      );
    }
    const scale = temperature === 0 ? 1 : temperature;
    if (scale !== this.#temperature) this.#weigh(logits, offset, scale);
    const total = this.#total;
    const keepsAll = topP === 1 && (topK === 0 || topK >= this.#vocab);
    let token = this.#best;
    if (temperature > 0) token = keepsAll ? this.#pick(coin * total) : this.#pickOfBest(coin, total, topP, topK);
    this.#sampled.token = token;
    this.#sampled.logProb = (logits[offset + token]! - logits[offset + this.#best]!) / scale - Math.log(total);
    return this.#sampled;
  }

  #likeliest(logits: Float32Array, offset: number): number {
    const vocab = this.#vocab;
    let best = 0;
    let highest = logits[offset]!;
    for (let token = 0; token < vocab; token++) {
      const logit = logits[offset + token]!;
      if (!Number.isFinite(logit)) {
        throw new Error(
          `cannot sample: logit ${token} of ${vocab} at ${offset} is ${logit}; ` +
            "every logit must be finite, so the weights are corrupt or training has diverged",
        );
      }
      if (logit > highest) {
        best = token;
        highest = logit;
      }
    }
    return best;
  }

  /** Fills the weights. Their sum is at least 1. */
  #weigh(logits: Float32Array, offset: number, temperature: number): void {
    const weights = this.#weights;
    const best = this.#likeliest(logits, offset);
    const highest = logits[offset + best]!;
    let total = 0;
    for (let token = 0; token < weights.length; token++) {
      const weight = Math.exp((logits[offset + token]! - highest) / temperature);
      weights[token] = weight;
      total += weight;
    }
    this.#best = best;
    this.#temperature = temperature;
    this.#total = total;
  }

  /** The token at which the running sum of weights passes `mark`. */
  #pick(mark: number): number {
    const weights = this.#weights;
    let passed = 0;
    let last = 0;
    for (let token = 0; token < weights.length; token++) {
      const weight = weights[token]!;
      passed += weight;
      last = token;
      if (passed > mark) break;
    }
    return last;
  }

  /** Picks among the tokens that top-k and top-p keep. The running sum of weights begins with the likeliest token. */
  #pickOfBest(coin: number, total: number, topP: number, topK: number): number {
    this.#buildHeap();
    const countMax = topK === 0 ? this.#vocab : Math.min(topK, this.#vocab);
    let mass = total;
    if (topK > 0) {
      mass = 0;
      for (let rank = 0; rank < countMax; rank++) mass += this.#weights[this.#ranked(rank)]!;
    }
    let count = 0;
    let kept = 0;
    while (count < countMax && kept < topP * mass) kept += this.#weights[this.#ranked(count++)]!;
    let passed = 0;
    for (let rank = 0; rank < count - 1; rank++) {
      passed += this.#weights[this.#ranked(rank)]!;
      if (passed > coin * kept) return this.#ranked(rank);
    }
    return this.#ranked(count - 1);
  }

  /** A heap, because top-p keeps few tokens: sorting the whole vocabulary would take longer than the rest of a sample. */
  #buildHeap(): void {
    this.#heapSize = this.#vocab;
    for (let token = 0; token < this.#vocab; token++) this.#heap[token] = token;
    for (let at = (this.#vocab >>> 1) - 1; at >= 0; at--) this.#sink(at);
  }

  /** The token of a rank: 0 is the likeliest; equally likely tokens are in the order of their ids. */
  #ranked(rank: number): number {
    while (this.#vocab - this.#heapSize <= rank) {
      const top = this.#heap[0]!;
      this.#heapSize -= 1;
      this.#heap[0] = this.#heap[this.#heapSize]!;
      this.#heap[this.#heapSize] = top;
      this.#sink(0);
    }
    return this.#heap[this.#vocab - 1 - rank]!;
  }

  #sink(from: number): void {
    const heap = this.#heap;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#heapSize) return;
      if (child + 1 < this.#heapSize && this.#likelier(heap[child + 1]!, heap[child]!)) child += 1;
      const token = heap[at]!;
      if (!this.#likelier(heap[child]!, token)) return;
      heap[at] = heap[child]!;
      heap[child] = token;
      at = child;
    }
  }

  #likelier(a: number, b: number): boolean {
    const difference = this.#weights[a]! - this.#weights[b]!;
    return difference > 0 || (difference === 0 && a < b);
  }
}
