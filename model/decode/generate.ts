/**
 * Writes replies: decodes every open sequence that owes one, all in one batch, one token a step.
 * Tokens in, tokens out: it knows no text, no env and no episode but its name, which names the coins.
 *
 * - Nothing is re-encoded: a sequence's cache stays until it is closed, and a later turn appends to all of it, or to as much of its
 *   beginning as it keeps.
 * - A reply is a function of parameters, sequence, coins and settings, whatever else is decoded beside it.
 * - Every reply says whether the policy ended it or a limit cut it.
 * - A request that cannot be met is refused before anything is computed, and logits that are not finite end the reply they were
 *   for: no other sequence is touched. Only a failure of the engine ends all that were computed together.
 */

import { type CoinKey, coin } from "../rng.ts";
import type { Decoder } from "./decoder.ts";
import { type SampleSettings, TokenSampler } from "./token-sampler.ts";

export interface ReplyRequest {
  /** What came since the last reply; never empty. */
  readonly prompt: readonly number[];
  /** Tokens of the sequence that stay in front of the prompt; those behind them are forgotten. All, if left out. */
  readonly keep?: number;
  readonly coins: CoinKey;
  /** The coin of the sequence's first token; each further token has the next. 0 if left out. */
  readonly coinsFrom?: number;
  readonly settings: SampleSettings;
  /** Tokens that end a reply. */
  readonly stops: readonly number[];
  /** Tokens written at the most, the stop token included. */
  readonly tokensMax: number;
}

export interface Reply {
  /** Written tokens, the stop token included if it was written. */
  readonly tokens: number[];
  /** Natural-log probability of each, at the sampling temperature. */
  readonly logProbs: number[];
  /** True if `tokensMax` was reached without a stop token. */
  readonly cut: boolean;
}

interface Writing {
  readonly slot: number;
  readonly request: ReplyRequest;
  readonly tokens: number[];
  readonly logProbs: number[];
  /** Told when there is another token, or none will come. */
  readonly watchers: (() => void)[];
  over: boolean;
  readonly done: (reply: Reply) => void;
  readonly failed: (error: unknown) => void;
}

export class Generator {
  readonly #decoder: Decoder;
  readonly #vocabulary: number;
  readonly #sampler: TokenSampler;
  readonly #free: number[];
  readonly #slots = new Map<string, number>();
  /** By slot: the reply that it owes. */
  readonly #owing = new Map<number, Writing>();
  /** By slot: a reply's last token, which was written but not fed yet. The next prompt brings it along. */
  readonly #unfed = new Map<number, number>();
  readonly #asked: Writing[] = [];
  #writing: readonly Writing[] = [];
  #running = false;
  /** Since the generator was made. */
  tokensWritten = 0;

  /** @param slots  as many as the decoder has. */
  constructor(decoder: Decoder, vocabulary: number, slots: number) {
    this.#decoder = decoder;
    this.#vocabulary = vocabulary;
    this.#sampler = new TokenSampler(vocabulary);
    // Low slots first, so that a batch of few sequences has few rows.
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  get openSequences(): number {
    return this.#slots.size;
  }

  /** Tokens of an open sequence so far. */
  length(name: string): number {
    const slot = this.#slotOf(name);
    return this.#decoder.length(slot) + (this.#unfed.has(slot) ? 1 : 0);
  }

  /** @throws {RangeError} if the name is taken or every slot is. */
  open(name: string): void {
    if (this.#slots.has(name)) throw new RangeError(`sequence ${name} is open already`);
    const slot = this.#free.pop();
    if (slot === undefined) throw new RangeError(`cannot open ${name}: all ${this.#slots.size} slots are taken`);
    this.#decoder.clear(slot);
    this.#slots.set(name, slot);
  }

  /** Forget a sequence. @throws {RangeError} if it owes a reply: wait for that first. */
  close(name: string): void {
    const slot = this.#slotOf(name);
    if (this.#owing.has(slot)) throw new RangeError(`cannot close ${name} while a reply to it is being written`);
    this.#slots.delete(name);
    this.#unfed.delete(slot);
    this.#free.push(slot);
    this.#free.sort((a, b) => b - a);
  }

  /**
   * Append the prompt to a sequence and write a reply to it. One at a time per sequence.
   *
   * @throws {RangeError} if the request makes no sense, or does not fit into what is left of the sequence; then nothing changed.
   * @throws {Error} if it could not be computed; then the sequence is of no more use.
   */
  reply(name: string, request: ReplyRequest): Promise<Reply> {
    const slot = this.#slotOf(name);
    this.#check(name, slot, request);
    if (request.keep !== undefined && request.keep < this.length(name)) {
      this.#decoder.truncate(slot, request.keep);
      this.#unfed.delete(slot);
    }
    return new Promise<Reply>((done, failed) => {
      const writing = { slot, request, tokens: [], logProbs: [], watchers: [], over: false, done, failed };
      this.#owing.set(slot, writing);
      this.#asked.push(writing);
      if (!this.#running) void this.#run();
    }).finally(() => this.#owing.delete(slot));
  }

  /** The reply that is being written, from token `from` on, as soon as there is such a token; empty when none will come. */
  async written(name: string, from: number): Promise<number[]> {
    const writing = this.#owing.get(this.#slotOf(name));
    if (writing === undefined) return [];
    if (!writing.over && writing.tokens.length <= from) await new Promise<void>((go) => writing.watchers.push(go));
    return writing.tokens.slice(from);
  }

  #check(name: string, slot: number, { prompt, tokensMax, keep = this.length(name) }: ReplyRequest): void {
    if (this.#owing.has(slot)) throw new RangeError(`sequence ${name} owes a reply already`);
    if (prompt.length === 0 || !Number.isInteger(tokensMax) || tokensMax < 1) {
      throw new RangeError(
        `sequence ${name}: ${tokensMax} tokens of reply to ${prompt.length} of prompt; at least 1 each`,
      );
    }
    const stray = prompt.find((token) => !Number.isInteger(token) || token < 0 || token >= this.#vocabulary);
    if (stray !== undefined)
      throw new RangeError(`sequence ${name}: there is no token ${stray} in ${this.#vocabulary}`);
    if (!Number.isInteger(keep) || keep < 0 || keep > this.length(name))
      throw new RangeError(`sequence ${name}: cannot keep ${keep} of ${this.length(name)} tokens`);
    // The last token of a reply is not fed before the next prompt; the first of the next prompt may be it.
    const needed = prompt.length + tokensMax - 1;
    const room = this.#decoder.length(slot) + this.#decoder.room(slot) - keep;
    if (needed <= room) return;
    throw new RangeError(
      `sequence ${name}: ${prompt.length} tokens of prompt and ${tokensMax} of reply need ${needed} places, ${room} are left`,
    );
  }

  #slotOf(name: string): number {
    const slot = this.#slots.get(name);
    if (slot === undefined) throw new RangeError(`sequence ${name} is not open`);
    return slot;
  }

  /** Works until nobody waits. Between steps the thread's other work gets its turn. */
  async #run(): Promise<void> {
    this.#running = true;
    while (this.#asked.length + this.#writing.length > 0) {
      await new Promise((next) => setImmediate(next));
      await this.#together(this.#asked.splice(0), (asked) => this.#admit(asked));
      await this.#together(this.#writing, (writing) => this.#step(writing));
    }
    this.#running = false;
  }

  /** What fails while these are computed in one batch fails for them, and for no others. */
  async #together(all: readonly Writing[], compute: (all: readonly Writing[]) => Promise<void>): Promise<void> {
    if (all.length === 0) return;
    try {
      await compute(all);
    } catch (error) {
      for (const writing of all) this.#fail(writing, error);
    }
  }

  /** Append the prompts that wait, and write the first token of each reply. */
  async #admit(asked: readonly Writing[]): Promise<void> {
    const prompts = asked.map(({ slot, request }) => {
      const unfed = this.#unfed.get(slot);
      return unfed === undefined ? request.prompt : [unfed, ...request.prompt];
    });
    const slots = asked.map(({ slot }) => slot);
    for (const slot of slots) this.#unfed.delete(slot);
    const logits = await this.#decoder.appendMany(slots, prompts);
    this.#writing = [...this.#writing, ...asked];
    for (const [row, writing] of asked.entries()) this.#write(writing, logits, row * this.#vocabulary);
  }

  async #step(all: readonly Writing[]): Promise<void> {
    const rows = Math.max(...all.map(({ slot }) => slot)) + 1;
    const fed = new Int32Array(rows).fill(-1);
    for (const { slot, tokens } of all) fed[slot] = tokens.at(-1)!;
    const logits = await this.#decoder.step(fed);
    for (const writing of all) this.#write(writing, logits, writing.slot * this.#vocabulary);
  }

  /** Choose the next token of a reply; its cache entry is made when it is fed. */
  #write(writing: Writing, logits: Float32Array, offset: number): void {
    const { slot, request, tokens, logProbs } = writing;
    try {
      const drawn = coin(request.coins, (request.coinsFrom ?? 0) + this.#decoder.length(slot));
      const { token, logProb } = this.#sampler.sample(logits, offset, drawn, request.settings);
      tokens.push(token);
      logProbs.push(logProb);
    } catch (error) {
      this.#fail(writing, error);
      return;
    }
    this.tokensWritten++;
    const ended = request.stops.includes(tokens.at(-1)!);
    for (const told of writing.watchers.splice(0)) told();
    if (!ended && tokens.length < request.tokensMax) return;
    this.#drop(writing);
    this.#unfed.set(slot, tokens.at(-1)!);
    writing.done({ tokens, logProbs, cut: !ended });
  }

  #fail(writing: Writing, error: unknown): void {
    this.#drop(writing);
    writing.failed(error);
  }

  #drop(writing: Writing): void {
    writing.over = true;
    for (const told of writing.watchers.splice(0)) told();
    this.#writing = this.#writing.filter((other) => other !== writing);
  }
}
