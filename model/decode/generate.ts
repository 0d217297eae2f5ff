/**
 * Writes replies to all sequences that wait for one, in one batch, one token a step. Tokens in, tokens out: it knows no text
 * and no env.
 *
 * - A sequence keeps its cache until it is closed. A later turn appends to it, or to the beginning that the request keeps.
 * - A reply depends on parameters, sequence, coins and settings only, not on the other sequences of the batch.
 * - A reply tells whether the policy ended it or a limit cut it.
 * - An invalid request is refused before anything is computed. Logits that are not finite fail the one reply they belong to.
 *   A failure of the engine fails every reply of the batch.
 */

import { type CoinKey, coin } from "../rng.ts";
import type { Decoder } from "./decoder.ts";
import { type SampleSettings, TokenSampler } from "./token-sampler.ts";
import { type TokenChoice, tokenChoice } from "./top-log-probs.ts";

export interface ReplyRequest {
  /** What came since the last reply; never empty. */
  readonly prompt: readonly number[];
  /** Tokens of the sequence to keep in front of the prompt; the rest is dropped. Default: all. */
  readonly keep?: number;
  readonly coins: CoinKey;
  /** Index of the coin of the sequence's first token; each further token has the next one. Default: 0. */
  readonly coinsFrom?: number;
  readonly settings: SampleSettings;
  /** Tokens that end a reply. */
  readonly stops: readonly number[];
  /** Most tokens to write, including the stop token. */
  readonly tokensMax: number;
  /** Report this many likeliest tokens in place of each written one. Default: nothing is reported. */
  readonly tops?: number;
}

export interface Reply {
  /** Written tokens, including the stop token if there is one. */
  readonly tokens: number[];
  /** Natural-log probability of each, at the sampling temperature. */
  readonly logProbs: number[];
  /** True if `tokensMax` was reached without a stop token. */
  readonly cut: boolean;
  /** One for each written token, if the request has `tops`. */
  readonly choices?: readonly TokenChoice[];
}

/** A reply in progress. */
interface PendingReply {
  readonly slot: number;
  readonly request: ReplyRequest;
  readonly tokens: number[];
  readonly logProbs: number[];
  readonly choices: TokenChoice[];
  /** Called at the next token, and at the end. */
  readonly watchers: (() => void)[];
  ended: boolean;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

export class Generator {
  readonly #decoder: Decoder;
  readonly #vocabulary: number;
  readonly #sampler: TokenSampler;
  readonly #free: number[];
  readonly #slots = new Map<string, number>();
  /** By slot. */
  readonly #pending = new Map<number, PendingReply>();
  /** By slot: a reply's last token, which is not in the cache yet. It goes in front of the next prompt. */
  readonly #unfed = new Map<number, number>();
  /** Replies whose prompt is not in the cache yet. */
  readonly #waiting: PendingReply[] = [];
  #decoding: readonly PendingReply[] = [];
  #running = false;

  /** @param slots  as many as the decoder has. */
  constructor(decoder: Decoder, vocabulary: number, slots: number) {
    this.#decoder = decoder;
    this.#vocabulary = vocabulary;
    this.#sampler = new TokenSampler(vocabulary);
    // Low slots first, so that a batch of few sequences has few rows.
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
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

  /** @throws {RangeError} while a reply to the sequence is being written. */
  close(name: string): void {
    const slot = this.#slotOf(name);
    if (this.#pending.has(slot)) throw new RangeError(`cannot close ${name} while a reply to it is being written`);
    this.#slots.delete(name);
    this.#unfed.delete(slot);
    this.#free.push(slot);
    this.#free.sort((a, b) => b - a);
  }

  /**
   * Append the prompt to a sequence and write a reply to it. One at a time per sequence.
   *
   * @throws {RangeError} if the request is invalid, or does not fit into the rest of the sequence; then nothing changed.
   * @throws {Error} if the engine failed; then close the sequence.
   */
  reply(name: string, request: ReplyRequest): Promise<Reply> {
    const slot = this.#slotOf(name);
    this.#check(name, slot, request);
    if (request.keep !== undefined && request.keep < this.length(name)) {
      this.#decoder.truncate(slot, request.keep);
      this.#unfed.delete(slot);
    }
    return new Promise<Reply>((resolve, reject) => {
      const reply = {
        slot,
        request,
        tokens: [],
        logProbs: [],
        choices: [],
        watchers: [],
        ended: false,
        resolve,
        reject,
      };
      this.#pending.set(slot, reply);
      this.#waiting.push(reply);
      if (!this.#running) void this.#run();
    }).finally(() => this.#pending.delete(slot));
  }

  /** Waits for token `from` of the reply in progress. @returns the tokens from there on; empty if the reply ended before */
  async written(name: string, from: number): Promise<number[]> {
    const reply = this.#pending.get(this.#slotOf(name));
    if (reply === undefined) return [];
    if (!reply.ended && reply.tokens.length <= from) await new Promise<void>((go) => reply.watchers.push(go));
    return reply.tokens.slice(from);
  }

  #check(name: string, slot: number, { prompt, tokensMax, keep = this.length(name) }: ReplyRequest): void {
    if (this.#pending.has(slot)) throw new RangeError(`sequence ${name} is writing a reply already; wait for it`);
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
    // The last token of a reply is fed with the next prompt.
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

  /** Runs until no reply is pending. Between steps the thread does its other work. */
  async #run(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length + this.#decoding.length > 0) {
      await new Promise((next) => setImmediate(next));
      await this.#batch(this.#waiting.splice(0), (replies) => this.#admit(replies));
      await this.#batch(this.#decoding, (replies) => this.#step(replies));
    }
    this.#running = false;
  }

  /** An error of `compute` fails the replies of this batch, and no others. */
  async #batch(
    replies: readonly PendingReply[],
    compute: (replies: readonly PendingReply[]) => Promise<void>,
  ): Promise<void> {
    if (replies.length === 0) return;
    try {
      await compute(replies);
    } catch (error) {
      for (const reply of replies) this.#fail(reply, error);
    }
  }

  /** Append the waiting prompts, and write the first token of each reply. */
  async #admit(replies: readonly PendingReply[]): Promise<void> {
    const prompts = replies.map(({ slot, request }) => {
      const unfed = this.#unfed.get(slot);
      return unfed === undefined ? request.prompt : [unfed, ...request.prompt];
    });
    const slots = replies.map(({ slot }) => slot);
    for (const slot of slots) this.#unfed.delete(slot);
    const logits = await this.#decoder.append(slots, prompts);
    this.#decoding = [...this.#decoding, ...replies];
    for (const [row, reply] of replies.entries()) this.#write(reply, logits, row * this.#vocabulary);
  }

  async #step(replies: readonly PendingReply[]): Promise<void> {
    const rows = Math.max(...replies.map(({ slot }) => slot)) + 1;
    const fed = new Int32Array(rows).fill(-1);
    for (const { slot, tokens } of replies) fed[slot] = tokens.at(-1)!;
    const logits = await this.#decoder.step(fed);
    for (const reply of replies) this.#write(reply, logits, reply.slot * this.#vocabulary);
  }

  /** Sample the next token of a reply. Its cache entry is computed when it is fed. */
  #write(reply: PendingReply, logits: Float32Array, offset: number): void {
    const { slot, request, tokens, logProbs } = reply;
    try {
      const drawn = coin(request.coins, (request.coinsFrom ?? 0) + this.#decoder.length(slot));
      const { token, logProb } = this.#sampler.sample(logits, offset, drawn, request.settings);
      tokens.push(token);
      logProbs.push(logProb);
      if (request.tops !== undefined)
        reply.choices.push(tokenChoice(logits, offset, this.#vocabulary, token, request.tops));
    } catch (error) {
      this.#fail(reply, error);
      return;
    }
    const stopped = request.stops.includes(tokens.at(-1)!);
    for (const notify of reply.watchers.splice(0)) notify();
    if (!stopped && tokens.length < request.tokensMax) return;
    this.#end(reply);
    this.#unfed.set(slot, tokens.at(-1)!);
    const choices = request.tops === undefined ? {} : { choices: reply.choices };
    reply.resolve({ tokens, logProbs, cut: !stopped, ...choices });
  }

  #fail(reply: PendingReply, error: unknown): void {
    this.#end(reply);
    reply.reject(error);
  }

  #end(reply: PendingReply): void {
    reply.ended = true;
    for (const notify of reply.watchers.splice(0)) notify();
    this.#decoding = this.#decoding.filter((other) => other !== reply);
  }
}
