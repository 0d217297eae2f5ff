/**
 * Checks the invariants of docs/architecture.md from outside the actors, with its own records. The first broken invariant ends the run.
 * Simulated runs have no tensors, so here invariant 8 is: the number of sequences that a sampler holds is at most the number of episodes that
 * it plays.
 */
import type { Ticket } from "../../actors/protocol.ts";
import type { Trajectory } from "../../model/trajectory.ts";
import type { Life } from "./world.ts";

/** The log-probability of every token that a policy with these weights writes: it identifies the weights, and is exact in single precision. */
export const markOf = (digest: string): number => -(Number.parseInt(digest.slice(0, 6), 16) + 1) / 2 ** 24;

/** Maximum number of policy versions by which an episode may be stale in async mode. */
export const STALENESS_MAX = 2;

interface OpenAsk {
  readonly life: Life;
  readonly type: string;
  readonly dueAtMs: number;
}

/** A policy's history: the update that trained on each episode. */
type Lineage = ReadonlyMap<string, string>;

export class Invariants {
  /** The invariant that was broken first; null if none. */
  first: string | null = null;
  readonly #asks = new Set<OpenAsk>();
  #checks: { readonly life: Life; readonly check: () => void }[] = [];
  /** By digest of saved parameters: the history of these parameters, and the oldest policy version with these parameters. */
  readonly #saved = new Map<string, { readonly lineage: Lineage; readonly version: number }>();
  /** Metrics that the learner reported, by "name step". */
  readonly metrics = new Map<string, number>();
  /** Episodes that the sink acknowledged as stored. */
  readonly acknowledged = new Set<string>();
  /** History of the newest policy. */
  lineage = new Map<string, string>();

  /** @param invariant  number in docs/architecture.md; 0: anything else that must not happen */
  broken(invariant: number, text: string): void {
    this.first ??= invariant === 0 ? text : `invariant ${invariant}: ${text}`;
  }

  /** Records an ask. @returns a function to call when the answer arrives */
  asked(life: Life, type: string, deadlineMs: number): () => void {
    const ask: OpenAsk = { life, type, dueAtMs: life.clock.now() + deadlineMs };
    this.#asks.add(ask);
    return () => {
      if (!this.#asks.delete(ask)) this.broken(2, `${life.name} had two answers to ${type}`);
    };
  }

  /** Calls `check` after every event while the process lives. */
  always(life: Life, check: () => void): void {
    this.#checks.push({ life, check });
  }

  /** Called after every event. */
  check(nowMs: number): void {
    for (const ask of this.#asks) {
      const { life, type, dueAtMs } = ask;
      if (!life.alive) this.#asks.delete(ask);
      else if (!life.frozen && nowMs > Math.max(dueAtMs, life.thawedAtMs) + 1)
        this.broken(2, `${life.name} had no answer to ${type} at its deadline`);
    }
    if (this.#checks.some(({ life }) => !life.alive)) this.#checks = this.#checks.filter(({ life }) => life.alive);
    for (const { check } of this.#checks) check();
  }

  /** Called when a learner starts. @param digest  digest of its parameters; null for fresh parameters. @returns their policy version */
  resumed(digest: string | null): number {
    const saved = digest === null ? { lineage: new Map(), version: 0 } : this.#saved.get(digest);
    if (saved === undefined) this.broken(3, `the learner resumed from parameters ${digest} that were never saved`);
    this.lineage = new Map(saved?.lineage);
    return saved?.version ?? 0;
  }

  saved(digest: string, version: number): void {
    const earlier = this.#saved.get(digest);
    this.#saved.set(digest, { lineage: new Map(this.lineage), version: earlier?.version ?? version });
  }

  /** Called when an update trains on these episodes. @param published  digest of the published weights, by policy version */
  trained(
    update: string,
    batch: readonly { readonly ticket: Ticket; readonly trajectory: Trajectory }[],
    version: number,
    published: ReadonlyMap<number, string>,
  ): void {
    for (const { ticket, trajectory } of batch) {
      const what = `${ticket.episode} of version ${trajectory.version}`;
      const earlier = this.lineage.get(ticket.episode);
      if (earlier !== undefined)
        this.broken(3, `${ticket.episode} is trained on in ${update}, and was already trained on in ${earlier}`);
      this.lineage.set(ticket.episode, update);
      if (version - trajectory.version > STALENESS_MAX) this.broken(4, `${what} is trained on with version ${version}`);
      if (ticket.exact && trajectory.version !== ticket.version)
        this.broken(5, `${what} was to be played with exactly ${ticket.version}`);
      if (published.get(trajectory.version) !== trajectory.digest)
        this.broken(5, `${what} was played with other weights`);
      const mark = Math.fround(markOf(trajectory.digest));
      const mixed = trajectory.logProbs.some((logProb, i) => trajectory.written[i] === 1 && logProb !== mark);
      if (mixed) this.broken(5, `${what} has tokens that other weights wrote`);
    }
  }

  /** Called for each reported metric. @param isTimeIndependent  true if a resumed learner must report the same value, at any speed */
  metric(name: string, step: number, value: number, isTimeIndependent: boolean): void {
    const key = `${name} ${step}`;
    const known = this.metrics.get(key);
    if (isTimeIndependent && known !== undefined && known !== value)
      this.broken(7, `${key} was ${known}, and after a resume it is ${value}`);
    this.metrics.set(key, value);
  }
}
