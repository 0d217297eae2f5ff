/**
 * The invariants of docs/architecture.md as an onlooker sees them, who keeps books of its own. The first that is broken ends
 * the run. The 8th, of tensors, becomes one of sequences here: there is no tensor in a simulated run.
 */

import { TicketBook, type TicketBookOptions } from "../../actors/learner/tickets.ts";
import type { FinishedTicket } from "../../actors/play/finished-ticket.ts";
import type { Outcome, PlayedOutcome, Ticket } from "../../actors/protocol.ts";
import type { Life } from "./world.ts";

/** What its weights leave on every token that a policy writes: a log-probability that names them. Exact in single precision. */
export const markOf = (digest: string): number => -(Number.parseInt(digest.slice(0, 6), 16) + 1) / 2 ** 24;

interface OpenAsk {
  readonly life: Life;
  readonly type: string;
  readonly dueAtMs: number;
}

/** Bounds that are looked at after every event. */
export interface Queue {
  readonly name: string;
  readonly life: Life;
  length(): number;
  readonly max: number;
}

/** What a policy has learnt, as of one checkpoint. */
export type Lineage = ReadonlyMap<string, string>;

export class Invariants {
  #broken: string | null = null;
  readonly #asks = new Set<OpenAsk>();
  #queues: Queue[] = [];
  #checks: { readonly life: Life; readonly check: () => void }[] = [];
  /** By digest of the parameters: all that they were made from. */
  readonly #lineages = new Map<string, Lineage>();
  /** Told by the learner, by name and step. */
  readonly told = new Map<string, number>();
  /** Of rows whose storing was answered: "episode attempt". */
  readonly acknowledged = new Set<string>();
  /** The policy that is in force now was trained on these, in these updates. */
  lineage = new Map<string, string>();

  get first(): string | null {
    return this.#broken;
  }

  /** @param invariant  its number in docs/architecture.md; 0: something that nobody should see */
  broken(invariant: number, text: string): void {
    this.#broken ??= invariant === 0 ? text : `invariant ${invariant}: ${text}`;
  }

  /** @returns called with the answer. */
  asked(life: Life, type: string, deadlineMs: number): () => void {
    const ask: OpenAsk = { life, type, dueAtMs: life.clock.now() + deadlineMs };
    this.#asks.add(ask);
    return () => {
      if (!this.#asks.delete(ask)) this.broken(2, `${life.name} had two answers to ${type}`);
    };
  }

  bounded(queue: Queue): void {
    this.#queues.push(queue);
  }

  /** Something to look at after every event, while this life lasts. */
  always(life: Life, check: () => void): void {
    this.#checks.push({ life, check });
  }

  /** After every event. */
  check(nowMs: number): void {
    for (const ask of this.#asks) {
      const { life, type, dueAtMs } = ask;
      if (!life.alive) this.#asks.delete(ask);
      else if (!life.frozen && nowMs > Math.max(dueAtMs, life.thawedAtMs) + 1)
        this.broken(2, `${life.name} had no answer to ${type} at its deadline`);
    }
    if (this.#queues.some(({ life }) => !life.alive)) this.#queues = this.#queues.filter(({ life }) => life.alive);
    for (const { name, length, max } of this.#queues) {
      const found = length();
      if (found > max) this.broken(6, `${name} holds ${found}, at most ${max}`);
    }
    if (this.#checks.some(({ life }) => !life.alive)) this.#checks = this.#checks.filter(({ life }) => life.alive);
    for (const { check } of this.#checks) check();
  }

  /** A learner goes on from these parameters; null: from none. */
  resumed(digest: string | null): void {
    const lineage = digest === null ? new Map() : this.#lineages.get(digest);
    if (lineage === undefined) this.broken(3, `the learner resumed from parameters ${digest} that nobody saved`);
    this.lineage = new Map(lineage);
  }

  saved(digest: string): void {
    this.#lineages.set(digest, new Map(this.lineage));
  }

  /** An update begins with these. */
  trained(
    update: string,
    batch: readonly { ticket: Ticket; outcome: PlayedOutcome }[],
    { version, stalenessMax }: { readonly version: number; readonly stalenessMax: number },
    digestOf: (version: number) => string | undefined,
  ): void {
    for (const { ticket, outcome } of batch) {
      const { trajectory } = outcome;
      const what = `${ticket.episode} of version ${trajectory.version}`;
      const earlier = this.lineage.get(ticket.episode);
      if (earlier !== undefined) this.broken(3, `${ticket.episode} is trained on in ${update}, and was in ${earlier}`);
      this.lineage.set(ticket.episode, update);
      if (version - trajectory.version > stalenessMax) this.broken(4, `${what} is trained on with version ${version}`);
      if (ticket.exact && trajectory.version !== ticket.version)
        this.broken(5, `${what} was to be played with exactly ${ticket.version}`);
      if (digestOf(trajectory.version) !== trajectory.digest) this.broken(5, `${what} was played with other weights`);
      const mark = Math.fround(markOf(trajectory.digest));
      const mixed = trajectory.logProbs.some((logProb, i) => trajectory.written[i] === 1 && logProb !== mark);
      if (mixed) this.broken(5, `${what} has tokens that other weights wrote`);
    }
  }

  /** A metric that must not depend on time. Told again by a resumed learner, it is the same. */
  metric(name: string, step: number, value: number, lasting: boolean): void {
    const key = `${name} ${step}`;
    const known = this.told.get(key);
    if (lasting && known !== undefined && known !== value)
      this.broken(7, `${key} was ${known}, and after a resume it is ${value}`);
    this.told.set(key, value);
  }
}

/** A book of tickets beside which another one is kept: who may play what, and until when. */
export class WatchedBook extends TicketBook {
  readonly #invariants: Invariants;
  readonly #options: TicketBookOptions;
  readonly #leases = new Map<string, { readonly sampler: string; readonly attempt: number; readonly endsAt: number }>();
  readonly #attempts = new Map<string, number>();
  #open = 0;

  readonly #takesAnything: boolean;

  /** @param takesAnything  a defect to be found: late outcomes are used like any other */
  constructor(options: TicketBookOptions, invariants: Invariants, takesAnything: boolean) {
    super(options);
    this.#takesAnything = takesAnything;
    this.#options = options;
    this.#invariants = invariants;
  }

  /** Tickets that are neither waiting nor played nor ended are lost. */
  check(): void {
    const known = this.waiting + this.leasedInAll;
    if (known !== this.#open)
      this.#invariants.broken(1, `${known} tickets are in the book, and ${this.#open} are open`);
  }

  override async issue(tickets: readonly Ticket[]): Promise<FinishedTicket[]> {
    const finished = super.issue(tickets);
    this.#open += tickets.length;
    const ended = await finished;
    const names = (of: readonly { episode: string }[]) => of.map(({ episode }) => episode).join();
    if (names(ended.map(({ ticket }) => ticket)) !== names(tickets))
      this.#invariants.broken(1, `${names(tickets)} were issued and ${names(ended.map(({ ticket }) => ticket))} ended`);
    return ended;
  }

  override grant(sampler: string, slotsFree: number, version: number | null): Ticket[] {
    const granted = super.grant(sampler, slotsFree, version);
    const endsAt = this.#options.clock.now() + this.#options.leaseMs;
    for (const { episode, attempt } of granted) {
      if (this.#leases.has(episode)) this.#invariants.broken(1, `${episode} is played twice at a time`);
      const before = this.#attempts.get(episode) ?? -1;
      if (attempt <= before) this.#invariants.broken(1, `${episode} is issued as attempt ${attempt} after ${before}`);
      this.#attempts.set(episode, attempt);
      this.#leases.set(episode, { sampler, attempt, endsAt });
    }
    return granted;
  }

  override finish(sampler: string, episode: string, attempt: number, outcome: Outcome): boolean {
    const lease = this.#leases.get(episode);
    const taken = super.finish(sampler, episode, attempt, outcome) || this.#takesAnything;
    const due = lease?.sampler === sampler && lease.attempt === attempt;
    if (taken && !due) this.#invariants.broken(1, `${episode} was taken from ${sampler}, who had no ticket for it`);
    if (taken) this.#leases.delete(episode);
    if (taken && "trajectory" in outcome) this.#open--;
    return taken;
  }

  override lost(sampler: string): void {
    super.lost(sampler);
    for (const [episode, lease] of this.#leases) if (lease.sampler === sampler) this.#leases.delete(episode);
  }

  /** For `expired` of the options: their leases ran out. */
  expire(): void {
    const now = this.#options.clock.now();
    for (const [episode, { endsAt }] of this.#leases) if (endsAt <= now) this.#leases.delete(episode);
  }
}
