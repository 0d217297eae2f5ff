/**
 * The sampler plays tickets with its copy of the policy. It knows neither groups nor learning.
 *
 * - The sampler plays a ticket with the version that the ticket names, or with a newer version if the ticket allows that. By default weights
 *   change only while no episode is in play. With `weightsBetween: turns` weights change while the policy writes no reply, and new replies
 *   wait for announced weights. A reply names its version if the episode began with another version. The key-value caches of an episode keep what
 *   older weights computed.
 * - The sampler acknowledges the sha256 of the bytes in use: it computes the sha256, or checks the bytes' seal (weights/seal.ts). It never
 *   uses bytes with a wrong digest. It reports a wrong digest, unless the learner has announced newer weights. After this report the learner
 *   quarantines the sampler. If the sampler cannot read the newest weights, the process ends.
 * - The sampler sends an outcome until the learner takes or refuses it. When the connection to the learner ends, the sampler drops waiting
 *   tickets and weights not yet loaded. The learner reissues the tickets, and sends the weights on the next connection.
 * - The sampler plays at most `slots` episodes at once; further tickets wait.
 */
import type { EnvTag } from "../../envs/tag.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { describeError, EpisodeError } from "../errors.ts";
import type { Log } from "../log.ts";
import type { Meter } from "../metrics/meter.ts";
import { type EpisodePolicy, type PlayRules, playEpisode } from "../play/play-episode.ts";
import type { ReplyTokens } from "../play/transcript.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { Answer, Ask, Messages, Outcome, PolicyVersion, Tell, Ticket } from "../protocol.ts";
import { notTaken, refused } from "../transport/refusals.ts";
import type { Handler, Peer } from "../transport/transport.ts";
import type { EnvServerConnections } from "./env-connections.ts";
import type { PolicyMethods } from "./policy.ts";

export interface SamplerOptions {
  readonly actor: string;
  readonly slots: number;
  readonly rules: PlayRules;
  readonly dialogue: Dialogue;
  readonly policy: EpisodePolicy & Pick<Remote<PolicyMethods>, "load">;
  readonly envConnections: EnvServerConnections;
  readonly envTag: (name: string) => EnvTag;
  /** Limit on the tries of one episode on this sampler, including tries in which no env server connects in time. */
  readonly triesMax: number;
  readonly weightsBetween: "episodes" | "turns";
  readonly askDeadlineMs: number;
  readonly log: Log;
  readonly meter: Meter;
  /** Ends the process: the sampler cannot continue. */
  readonly fail: (error: unknown) => void;
}

export class Sampler implements Handler {
  readonly #options: SamplerOptions;
  /** Names of the episodes in play, including those whose tickets came over an earlier connection. */
  readonly #playing = new Set<string>();
  #waiting: Ticket[] = [];
  #learner: Peer | null = null;
  #weights: PolicyVersion | null = null;
  /** The newest weights that this connection announced; null if none are left to load. */
  #next: Messages["weights"] | null = null;
  #loading = false;
  #stopped = false;
  /** Number of replies that the policy is writing. */
  #writing = 0;
  /** Functions that continue the replies that wait for newer weights. */
  readonly #held: (() => void)[] = [];

  constructor(options: SamplerOptions) {
    this.#options = options;
  }

  doing(): string {
    return `playing ${this.#playing.size} episodes with version ${this.#weights?.version ?? "none"}`;
  }

  get playing(): number {
    return this.#playing.size;
  }

  /** Number of tickets that wait for a slot or for weights. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get weights(): PolicyVersion | null {
    return this.#weights;
  }

  opened(peer: Peer): void {
    this.#learner = peer;
    peer.tell({ type: "sampler.ready", actor: this.#options.actor, slots: this.#options.slots });
  }

  told(_: Peer, message: Tell): void {
    switch (message.type) {
      case "weights":
        this.#next = message;
        void this.#loadNewest();
        break;
      case "tickets":
        this.#waiting.push(...message.tickets);
        this.#play();
        break;
      default:
        throw notTaken("to a sampler from the learner", message.type);
    }
  }

  asked(_: Peer, message: Ask): Answer {
    return refused("to a sampler from the learner", message.type);
  }

  closed(): void {
    this.#learner = null;
    this.#next = null;
    this.#waiting = [];
    this.#releaseReplies();
  }

  /** From now on the sampler begins no episode. The learner reissues the unfinished tickets. */
  stop(reason: string): void {
    this.#stopped = true;
    this.#waiting = [];
    this.#learner?.tell({ type: "sampler.leaving", actor: this.#options.actor, reason: reason.slice(0, 1000) });
  }

  /** Loads the newest weights, unless the old weights are in use. */
  async #loadNewest(): Promise<void> {
    const inUse = this.#options.weightsBetween === "turns" ? this.#writing : this.#playing.size;
    if (this.#loading || this.#next === null || inUse > 0) return;
    this.#loading = true;
    const message = this.#next;
    const learner = this.#learner;
    try {
      const { version } = message;
      const digest = this.#weights?.digest === message.digest ? message.digest : await this.#load(message);
      if (digest === message.digest) this.#weights = { version, digest };
      // If newer weights have replaced these weights, the path may already lead to the newer bytes. Then the wrong digest is no fault.
      const isReplaced = digest !== message.digest && this.#next !== message;
      // Another connection may lead to another learner, with versions of its own.
      if (learner === this.#learner && !isReplaced)
        learner?.tell({ type: "weights.loaded", actor: this.#options.actor, version, digest });
    } catch (error) {
      // After a lost connection, or if newer weights were announced, these weights may be gone. That is no failure.
      if (this.#next === message && !this.#stopped) this.#options.fail(error);
    }
    this.#loading = false;
    if (this.#next === message) this.#next = null;
    if (this.#next !== null) return this.#loadNewest();
    this.#releaseReplies();
    this.#play();
  }

  #releaseReplies(): void {
    for (const release of this.#held.splice(0)) release();
  }

  /**
   * Writes a reply of an episode that began with the weights `first`. The sampler first waits until all announced weights are in use. The
   * reply names the version that wrote it, if that is not the version of `first`.
   */
  async #replyBetween(first: PolicyVersion, ...args: Parameters<EpisodePolicy["reply"]>): Promise<ReplyTokens> {
    while (this.#loading || this.#next !== null) await new Promise<void>((release) => this.#held.push(release));
    const { version } = this.#weights!;
    this.#writing++;
    try {
      const reply = await this.#options.policy.reply(...args);
      return version === first.version ? reply : { ...reply, version };
    } finally {
      this.#writing--;
      if (this.#next !== null) void this.#loadNewest();
    }
  }

  /**
   * Tries twice, because the weights of a dead learner may be gone before the sampler's `closed` runs. When the second try fails, `closed` has
   * usually run, and then the failure does not end the process.
   */
  async #load(message: Messages["weights"]): Promise<string> {
    const { policy } = this.#options;
    try {
      return await policy.load(message);
    } catch (error) {
      if (this.#next !== message || this.#stopped) throw error;
      return policy.load(message);
    }
  }

  #play(): void {
    // Announced weights come first: tickets wait until the sampler has loaded them.
    if (this.#loading || this.#next !== null || this.#weights === null || this.#stopped) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const ticket of waiting) {
      const { version, exact, episode } = ticket;
      const fits = exact ? version === this.#weights.version : version <= this.#weights.version;
      // This ticket needs another version. The learner reissues the ticket when the lease expires.
      if (!fits) continue;
      if (this.#playing.size >= this.#options.slots || this.#playing.has(episode)) this.#waiting.push(ticket);
      else void this.#playOne(ticket, this.#weights, this.#learner);
    }
  }

  async #playOne(ticket: Ticket, weights: PolicyVersion, learner: Peer | null): Promise<void> {
    this.#playing.add(ticket.episode);
    const outcome = await this.#outcomeOf(ticket, weights);
    this.#playing.delete(ticket.episode);
    if (learner !== null) void this.#send(learner, ticket, outcome);
    if (this.#next !== null) void this.#loadNewest();
    else this.#play();
  }

  async #outcomeOf(ticket: Ticket, weights: PolicyVersion): Promise<Outcome> {
    const { rules, dialogue, envConnections, envTag, triesMax, askDeadlineMs, meter } = this.#options;
    const policy = this.#policyOf(weights);
    for (let attempt = 1; ; attempt++) {
      try {
        const server = await envConnections.choose(ticket.episode);
        return await playEpisode(ticket, {
          rules,
          dialogue,
          policy,
          weights,
          tag: envTag(ticket.env),
          askEnv: (ask) => meter.during("time/env", server.ask(ask, askDeadlineMs)),
          closeEnv: (close) => server.tell(close),
        });
      } catch (error) {
        const lost = error instanceof EpisodeError && (error.boundary === "closed" || error.boundary === "capacity");
        if (lost && attempt < triesMax && !this.#stopped) continue;
        if (error instanceof EpisodeError)
          return { status: "envError", detail: `${error.message} (try ${attempt} of ${triesMax})` };
        this.#options.log.error("policy", `${ticket.episode}: ${describeError(error)}`);
        return { status: "aborted", detail: describeError(error) };
      }
    }
  }

  #policyOf(weights: PolicyVersion): EpisodePolicy {
    const { policy, weightsBetween } = this.#options;
    if (weightsBetween === "episodes") return policy;
    return {
      open: (sequence) => policy.open(sequence),
      reply: (sequence, request) => this.#replyBetween(weights, sequence, request),
      close: (sequence) => policy.close(sequence),
    };
  }

  /** Sends an outcome until the learner takes or refuses it, or the connection ends. */
  async #send(learner: Peer, ticket: Ticket, outcome: Outcome): Promise<void> {
    const { actor, askDeadlineMs } = this.#options;
    const { episode, attempt } = ticket;
    while (!learner.closed) {
      const answer = await learner.ask({ type: "episode.finished", actor, episode, attempt, outcome }, askDeadlineMs);
      if (answer.type === "episode.taken") return;
      // The outcome is too large for a message.
      if (answer.code === "capacity" && "trajectory" in outcome)
        return this.#send(learner, ticket, { status: "aborted", detail: answer.detail });
      if (answer.code !== "deadline" && answer.code !== "closed") {
        this.#options.log.error("refused", `the learner refused ${episode}: ${answer.detail}`);
        return;
      }
    }
  }
}
