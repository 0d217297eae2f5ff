/**
 * Writes replies: decodes every open sequence that owes one, all in one batch, one token a step.
 * Tokens in, tokens out: it knows no text, no env and no episode but its name, which names the coins.
 *
 * - Nothing is re-encoded: a sequence's cache stays until it is closed, and a later turn only appends.
 * - A reply is a function of parameters, sequence, coins and settings, whatever else is decoded beside it.
 * - Every reply says whether the policy ended it or a limit cut it.
 */
import type { Decoder } from "./decoder.ts";
import { type CoinKey, coin } from "./rng.ts";
import { Sampler, type SampleSettings } from "./sample.ts";

export interface ReplyRequest {
  /** What came since the last reply; never empty. */
  readonly prompt: readonly number[];
  readonly coins: CoinKey;
  readonly settings: SampleSettings;
  /** The token that ends a reply. */
  readonly stop: number;
  /** Tokens written at the most, the stop token included. */
  readonly tokensMax: number;
}

export interface Reply {
  /** Written tokens, the stop token included if it was written. */
  readonly tokens: number[];
  /** Natural-log probability of each, at the sampling temperature. */
  readonly logProbs: number[];
  /** True if `tokensMax` was reached without the stop token. */
  readonly cut: boolean;
}

interface Writing {
  readonly slot: number;
  readonly request: ReplyRequest;
  readonly tokens: number[];
  readonly logProbs: number[];
  readonly done: (reply: Reply) => void;
  readonly failed: (error: unknown) => void;
}

export class Generator {
  readonly #decoder: Decoder;
  readonly #vocabulary: number;
  readonly #sampler: Sampler;
  readonly #free: number[];
  readonly #slots = new Map<string, number>();
  /** By slot: a reply's last token, which was written but not fed yet. The next prompt brings it along. */
  readonly #unfed = new Map<number, number>();
  readonly #asked: Writing[] = [];
  #writing: Writing[] = [];
  #running = false;
  /** Since the generator was made. */
  tokensWritten = 0;

  /** @param slots  as many as the decoder has. */
  constructor(decoder: Decoder, vocabulary: number, slots: number) {
    this.#decoder = decoder;
    this.#vocabulary = vocabulary;
    this.#sampler = new Sampler(vocabulary);
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

  close(name: string): void {
    const slot = this.#slotOf(name);
    this.#slots.delete(name);
    this.#unfed.delete(slot);
    this.#free.push(slot);
    this.#free.sort((a, b) => b - a);
  }

  /** Append the prompt to a sequence and write a reply to it. One at a time per sequence. */
  reply(name: string, request: ReplyRequest): Promise<Reply> {
    const slot = this.#slotOf(name);
    return new Promise((done, failed) => {
      this.#asked.push({ slot, request, tokens: [], logProbs: [], done, failed });
      if (!this.#running) void this.#run();
    });
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
      try {
        await this.#admit();
        await this.#step();
      } catch (error) {
        const stranded = [...this.#writing, ...this.#asked.splice(0)];
        this.#writing = [];
        for (const { failed } of stranded) failed(error);
      }
    }
    this.#running = false;
  }

  /** Append the prompts that wait, and write the first token of each reply. */
  async #admit(): Promise<void> {
    const asked = this.#asked.splice(0);
    if (asked.length === 0) return;
    this.#writing.push(...asked);
    const prompts = asked.map(({ slot, request }) => {
      const unfed = this.#unfed.get(slot);
      return unfed === undefined ? request.prompt : [unfed, ...request.prompt];
    });
    const slots = asked.map(({ slot }) => slot);
    const logits = await this.#decoder.appendMany(slots, prompts);
    for (const slot of slots) this.#unfed.delete(slot);
    for (const [row, writing] of asked.entries()) this.#write(writing, logits, row * this.#vocabulary);
  }

  async #step(): Promise<void> {
    if (this.#writing.length === 0) return;
    const rows = Math.max(...this.#writing.map(({ slot }) => slot)) + 1;
    const fed = new Int32Array(rows).fill(-1);
    for (const { slot, tokens } of this.#writing) fed[slot] = tokens.at(-1)!;
    const logits = await this.#decoder.step(fed);
    for (const writing of [...this.#writing]) this.#write(writing, logits, writing.slot * this.#vocabulary);
  }

  /** Choose the next token of a reply; its cache entry is made when it is fed. */
  #write(writing: Writing, logits: Float32Array, offset: number): void {
    const { request, tokens, logProbs } = writing;
    const index = this.#decoder.length(writing.slot);
    const { token, logProb } = this.#sampler.sample(logits, offset, coin(request.coins, index), request.settings);
    tokens.push(token);
    logProbs.push(logProb);
    this.tokensWritten++;
    const ended = token === request.stop;
    if (ended || tokens.length === request.tokensMax) this.#finish(writing, !ended);
  }

  #finish(writing: Writing, cut: boolean): void {
    this.#writing = this.#writing.filter((other) => other !== writing);
    this.#unfed.set(writing.slot, writing.tokens.at(-1)!);
    writing.done({ tokens: writing.tokens, logProbs: writing.logProbs, cut });
  }
}
