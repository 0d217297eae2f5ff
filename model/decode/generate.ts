/**
 * Writes replies to all sequences that wait for one, in one batch, one token per step. The generator handles tokens; it knows no text and
 * no env.
 *
 * - A sequence keeps its cache until the sequence is closed. A later turn appends to the cache, or to the part that the request keeps.
 * - A reply depends only on parameters, sequence, coins and settings, not on the other sequences of the batch. A coin is a uniform
 *   random number, a function of seed, episode and token index.
 * - `Reply.cut` tells whether the policy ended the reply or a limit cut it.
 * - `reply` refuses an invalid request before the engine computes anything. Settings out of their ranges fail the reply at its first token
 *   (token-sampler.ts). Logits that are not finite fail the reply that they belong to. A failure of the engine fails every reply of the batch.
 * - A failed reply leaves its sequence empty. Other sequences that share its cache lose the cache (shared-caches.ts), and replies to them fail.
 */

import { type CoinKey, coin } from "../rng.ts";
import type { Decoder } from "./decoder.ts";
import { type CachedSequence, SharedCaches } from "./shared-caches.ts";
import { type SampleSettings, TokenSampler } from "./token-sampler.ts";
import { type TokenChoice, tokenChoice } from "./top-log-probs.ts";

export interface ReplyRequest {
  /** The tokens since the last reply; never empty. */
  readonly prompt: readonly number[];
  /** Number of tokens of the sequence to keep in front of the prompt; the generator drops the later tokens. Default: all. */
  readonly keep?: number;
  readonly coins: CoinKey;
  /** Index of the coin of the sequence's first token; each later token has the next coin. Default: 0. */
  readonly coinsFrom?: number;
  readonly settings: SampleSettings;
  /** Tokens that end a reply. */
  readonly stops: readonly number[];
  /** Maximum number of tokens to write, including the stop token. */
  readonly tokensMax: number;
  /** For each written token, also report this many likeliest tokens at its position. Default: none. */
  readonly tops?: number;
}

export interface Reply {
  /** Written tokens, including the stop token if there is one. */
  readonly tokens: number[];
  /** Natural-log probability of each written token, at the sampling temperature. */
  readonly logProbs: number[];
  /** True if the reply reached `tokensMax` without a stop token. */
  readonly cut: boolean;
  /** One choice for each written token, if the request has `tops`. */
  readonly choices?: readonly TokenChoice[];
}

interface Sequence {
  readonly name: string;
  readonly cached: CachedSequence;
  /** The last token of a reply, which is not in the cache yet. It goes in front of the next prompt. */
  unfed: number | null;
  pending: PendingReply | null;
}

interface PendingReply {
  readonly sequence: Sequence;
  readonly request: ReplyRequest;
  readonly tokens: number[];
  readonly logProbs: number[];
  readonly choices: TokenChoice[];
  /** Called at the next token, and at the end. */
  readonly watchers: (() => void)[];
  ended: boolean;
  readonly done: PromiseWithResolvers<Reply>;
}

export class Generator {
  readonly #caches: SharedCaches;
  readonly #capacity: number;
  readonly #vocabulary: number;
  readonly #slots: number;
  readonly #sampler: TokenSampler;
  readonly #open = new Map<string, Sequence>();
  /** Replies whose prompt is not in the cache yet. */
  readonly #waiting: PendingReply[] = [];
  #decoding: readonly PendingReply[] = [];
  #running = false;

  /** @param slots  number of slots of the decoder. */
  constructor(decoder: Decoder, vocabulary: number, slots: number) {
    this.#caches = new SharedCaches(decoder, vocabulary, slots);
    this.#capacity = decoder.capacity;
    this.#vocabulary = vocabulary;
    this.#slots = slots;
    this.#sampler = new TokenSampler(vocabulary);
  }

  /** Number of tokens in an open sequence. */
  length(name: string): number {
    return this.#lengthOf(this.#sequence(name));
  }

  #lengthOf({ cached, unfed }: Sequence): number {
    return cached.length + (unfed === null ? 0 : 1);
  }

  /** @throws {RangeError} if a sequence of this name is open, or all slots are taken. */
  open(name: string): void {
    if (this.#open.has(name)) throw new RangeError(`sequence ${name} is open already`);
    if (this.#open.size === this.#slots)
      throw new RangeError(`cannot open ${name}: all ${this.#slots} slots are taken`);
    this.#open.set(name, { name, cached: this.#caches.open(), unfed: null, pending: null });
  }

  /** @throws {RangeError} while a reply to the sequence is being written. */
  close(name: string): void {
    const { cached, pending } = this.#sequence(name);
    if (pending !== null) throw new RangeError(`cannot close ${name} while a reply to it is being written`);
    this.#open.delete(name);
    this.#caches.close(cached);
  }

  /**
   * Appends the prompt to a sequence and writes a reply. A sequence has at most one reply in progress.
   *
   * @throws {RangeError} if the request is invalid, or does not fit into the rest of its slot. After this error the sequence is unchanged.
   * @throws {Error} if the engine fails, a logit is not finite or the sequence lost its cache. After this error, close the sequence.
   */
  reply(name: string, request: ReplyRequest): Promise<Reply> {
    const sequence = this.#sequence(name);
    this.#check(sequence, request);
    if (request.keep !== undefined && request.keep < this.#lengthOf(sequence)) {
      sequence.cached.length = request.keep;
      sequence.unfed = null;
    }
    const reply: PendingReply = {
      sequence,
      request,
      tokens: [],
      logProbs: [],
      choices: [],
      watchers: [],
      ended: false,
      done: Promise.withResolvers(),
    };
    sequence.pending = reply;
    this.#waiting.push(reply);
    if (!this.#running) void this.#run();
    return reply.done.promise.finally(() => {
      sequence.pending = null;
    });
  }

  /**
   * Waits for the next token of the reply in progress, unless the reply has token `from` already.
   *
   * @returns the tokens from `from` on; empty if no reply is in progress, or the reply ends before that token.
   */
  async written(name: string, from: number): Promise<number[]> {
    const reply = this.#sequence(name).pending;
    if (reply === null) return [];
    if (!reply.ended && reply.tokens.length <= from) await new Promise<void>((go) => reply.watchers.push(go));
    return reply.tokens.slice(from);
  }

  #check(sequence: Sequence, { prompt, tokensMax, keep = this.#lengthOf(sequence) }: ReplyRequest): void {
    const { name, cached, pending } = sequence;
    const length = this.#lengthOf(sequence);
    if (pending !== null) throw new RangeError(`sequence ${name} is writing a reply already; wait for it`);
    if (cached.lost) throw lostCache(name);
    if (prompt.length === 0 || !Number.isInteger(tokensMax) || tokensMax < 1) {
      throw new RangeError(
        `sequence ${name}: the prompt has ${prompt.length} tokens and tokensMax is ${tokensMax}; both must be at least 1`,
      );
    }
    const stray = prompt.find((token) => !Number.isInteger(token) || token < 0 || token >= this.#vocabulary);
    if (stray !== undefined)
      throw new RangeError(`sequence ${name}: token ${stray} is outside the vocabulary of ${this.#vocabulary} tokens`);
    if (!Number.isInteger(keep) || keep < 0 || keep > length)
      throw new RangeError(`sequence ${name}: cannot keep ${keep} of ${length} tokens`);
    // The last token of the reply needs no place yet: it enters the cache with the next prompt.
    const needed = prompt.length + tokensMax - 1;
    const room = this.#capacity - keep;
    if (needed <= room) return;
    throw new RangeError(
      `sequence ${name}: ${prompt.length} tokens of prompt and ${tokensMax} of reply need room for ${needed} tokens, ` +
        `but only ${room} fit`,
    );
  }

  #sequence(name: string): Sequence {
    const sequence = this.#open.get(name);
    if (sequence === undefined) throw new RangeError(`sequence ${name} is not open`);
    return sequence;
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

  /** A reply whose sequence has lost its cache since the request fails. An error of `compute` fails all replies of this batch, and no others. */
  async #batch(
    requested: readonly PendingReply[],
    compute: (replies: readonly PendingReply[]) => Promise<void>,
  ): Promise<void> {
    for (const reply of requested) if (reply.sequence.cached.lost) this.#fail(reply, lostCache(reply.sequence.name));
    const replies = requested.filter(({ ended }) => !ended);
    if (replies.length === 0) return;
    try {
      await compute(replies);
    } catch (error) {
      for (const reply of replies) this.#fail(reply, error);
    }
  }

  /** Appends the waiting prompts, and writes the first token of each reply. */
  async #admit(replies: readonly PendingReply[]): Promise<void> {
    const prompts = replies.map(({ sequence, request }) => {
      const { unfed } = sequence;
      sequence.unfed = null;
      return unfed === null ? request.prompt : [unfed, ...request.prompt];
    });
    const logits = await this.#caches.append(
      replies.map(({ sequence }) => sequence.cached),
      prompts,
    );
    this.#decoding = [...this.#decoding, ...replies];
    for (const [row, reply] of replies.entries()) this.#write(reply, logits, row * this.#vocabulary);
  }

  async #step(replies: readonly PendingReply[]): Promise<void> {
    const { logits, places } = await this.#caches.step(
      replies.map(({ sequence }) => sequence.cached),
      replies.map(({ tokens }) => tokens.at(-1)!),
    );
    for (const [i, reply] of replies.entries())
      this.#write(reply, logits, places[i]!, i > 0 && places[i] === places[i - 1]);
  }

  /**
   * Samples the next token of a reply. The next step computes the token's cache entry.
   *
   * @param sameRow  true if the last call read the same row of the logits
   */
  #write(reply: PendingReply, logits: Float32Array, offset: number, sameRow = false): void {
    const { sequence, request, tokens, logProbs } = reply;
    try {
      const drawn = coin(request.coins, (request.coinsFrom ?? 0) + sequence.cached.length);
      const { token, logProb } = this.#sampler.sample(logits, offset, drawn, request.settings, sameRow);
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
    sequence.unfed = tokens.at(-1)!;
    const choices = request.tops === undefined ? {} : { choices: reply.choices };
    reply.done.resolve({ tokens, logProbs, cut: !stopped, ...choices });
  }

  #fail(reply: PendingReply, error: unknown): void {
    this.#end(reply);
    reply.sequence.unfed = null;
    this.#caches.fail(reply.sequence.cached);
    reply.done.reject(error);
  }

  #end(reply: PendingReply): void {
    reply.ended = true;
    for (const notify of reply.watchers.splice(0)) notify();
    this.#decoding = this.#decoding.filter((other) => other !== reply);
  }
}

const lostCache = (name: string) =>
  new Error(`sequence ${name} lost its cache, because a reply with the same tokens failed; close the sequence`);
