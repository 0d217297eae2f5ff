/**
 * A simulated network: real frames and peers, on connections with delays. A witness watches which tickets the learner sends (invariant 5).
 *
 * - As with TCP, messages of one connection arrive in order. If a connection breaks, only the messages that were sent last are lost.
 * - Messages of different connections may arrive in any order. The two ends of a cut connection notice at different times.
 * - A frozen process keeps its connections; messages to it wait.
 */
import type { AnswerTo, Ask, Tell } from "../../actors/protocol.ts";
import type { Envelope, Frame } from "../../actors/transport/frame.ts";
import { ListenerPeers, type Wire, WirePeer } from "../../actors/transport/peer.ts";
import type { Handler, Listener, Peer, Problem, Transport } from "../../actors/transport/transport.ts";
import type { Invariants } from "./invariants.ts";
import type { Life, World } from "./world.ts";

export const LIMITS = { frameBytesMax: 1 << 20, queuedBytesMax: 4 << 20 };
/** Both ends of a cut connection notice within this time. */
const NOTICE_MS = 3000;

export class Network {
  readonly world: World;
  readonly invariants: Invariants;
  /** The listening processes, by address. */
  readonly listening = new Map<string, { readonly life: Life; accept(name: string, wire: Wire): WirePeer }>();
  readonly links = new Set<Link>();
  /** Factor on every delay. */
  slowness = 1;
  #isolation: { readonly untilMs: number; readonly isIsolated: (name: string) => boolean } | null = null;
  #ports = 0;

  constructor(world: World, invariants: Invariants) {
    this.world = world;
    this.invariants = invariants;
  }

  delayMs(): number {
    const { world } = this;
    // Most messages are quick, and a few are late.
    return this.slowness * (world.uniform() < 0.05 ? world.between(20, 200) : world.between(0.2, 8));
  }

  /** Isolates some processes for this time: their messages wait and they make no new connection. Neither end notices. */
  isolate(ms: number, isIsolated: (name: string) => boolean): void {
    this.#isolation = { untilMs: this.world.now + ms, isIsolated };
    for (const link of this.links) link.stall(this.isolatedMs(...link.ends));
  }

  /** Milliseconds until these two reach each other again. The supervisor reaches every process. */
  isolatedMs(...ends: readonly string[]): number {
    if (this.#isolation === null || ends.includes("supervisor") || !ends.some(this.#isolation.isIsolated)) return 0;
    return Math.max(0, this.#isolation.untilMs - this.world.now);
  }

  nextAddress(life: Life): string {
    return `simulated://${life.name}:${++this.#ports}`;
  }
}

/** One connection: two ends that break together. */
class Link {
  readonly ends: readonly [string, string];
  readonly wires: SimulatedWire[] = [];
  cut = false;
  readonly #network: Network;

  constructor(network: Network, ...ends: readonly [string, string]) {
    this.#network = network;
    this.ends = ends;
    network.links.add(this);
  }

  /** Delivers nothing more. Each end notices after its own delay. */
  break(reason: string): void {
    if (this.cut) return;
    this.cut = true;
    this.#network.links.delete(this);
    for (const wire of this.wires) wire.lose(reason, this.#network.world.between(0, NOTICE_MS));
  }

  /** Delays all messages sent from now on. */
  stall(ms: number): void {
    for (const wire of this.wires) wire.stall(ms);
  }
}

class SimulatedWire implements Wire {
  readonly #network: Network;
  readonly #link: Link;
  readonly #life: Life;
  #far: { readonly peer: WirePeer; readonly life: Life } | null = null;
  #near: WirePeer | null = null;
  #arrivesAtMs = 0;
  /** Ids of the answered asks. No ask may get two answers. */
  readonly #answered = new Set<number>();
  queuedBytes = 0;

  constructor(network: Network, link: Link, life: Life) {
    this.#network = network;
    this.#link = link;
    this.#life = life;
    link.wires.push(this);
    // The system closes the connections of a dead process.
    life.onDeath.push(() => {
      network.links.delete(link);
      if (!link.cut && this.#far !== null) this.close("the process is gone");
    });
  }

  join(near: WirePeer, far: WirePeer, life: Life): void {
    this.#near = near;
    this.#far = { peer: far, life };
  }

  send(frame: Frame, envelope: Envelope): boolean {
    const { life, peer } = this.#far!;
    if (!this.#life.alive || this.#link.cut) return true;
    if (envelope.kind === "answer") {
      if (this.#answered.has(envelope.id))
        this.#network.invariants.broken(2, `${this.#life.name} answered ask ${envelope.id} twice`);
      this.#answered.add(envelope.id);
    }
    this.queuedBytes += frame.byteLength;
    const what = `← ${this.#life.name} ${frame.byteLength} bytes ${Bun.hash(frame).toString(36)}`;
    this.#network.world.schedule(life, this.#delayMs(), what, () => {
      this.queuedBytes -= frame.byteLength;
      if (!this.#link.cut) peer.receive(frame);
    });
    return true;
  }

  close(reason: string): void {
    const { life, peer } = this.#far!;
    this.#network.links.delete(this.#link);
    this.#network.world.schedule(life, this.#delayMs(), `lost ${this.#life.name}`, () => peer.lost(reason));
  }

  stall(ms: number): void {
    this.#arrivesAtMs = Math.max(this.#arrivesAtMs, this.#network.world.now + ms);
  }

  /** After this delay, this end notices that the connection is gone. */
  lose(reason: string, delayMs: number): void {
    this.#network.world.schedule(this.#life, delayMs, `cut off from ${this.#far!.life.name}`, () =>
      this.#near!.lost(reason),
    );
  }

  /** The delay of the next message, so long that no message arrives before an earlier message. */
  #delayMs(): number {
    const { world } = this.#network;
    this.#arrivesAtMs = Math.max(this.#arrivesAtMs, world.now + this.#network.delayMs());
    return this.#arrivesAtMs - world.now;
  }
}

/** A peer that reports its asks, stored rows and granted tickets to the invariants. */
class WatchedPeer extends WirePeer {
  readonly #invariants: Invariants;
  readonly #life: Life;
  readonly #grants: ReturnType<typeof grantWitness>;

  constructor(name: string, wire: Wire, handler: Handler, network: Network, life: Life) {
    const report = ({ kind, detail }: Problem) => {
      network.world.note(`${life.name} peer.${kind} ${detail.split("\n")[0]}`);
      if (kind !== "overflow") network.invariants.broken(0, `${life.name}: ${kind}: ${detail}`);
    };
    const grants = grantWitness(name, network.invariants);
    super(name, wire, grants.watching(handler), { clock: life.clock, token: "", ...LIMITS, report });
    this.#invariants = network.invariants;
    this.#life = life;
    this.#grants = grants;
  }

  override tell(message: Tell): void {
    this.#grants.sent(message);
    super.tell(message);
  }

  override ask<A extends Ask>(message: A, deadlineMs: number): Promise<AnswerTo<A>> {
    const answered = this.#invariants.asked(this.#life, message.type, deadlineMs);
    const answer = super.ask(message, deadlineMs);
    void answer.then((answer) => {
      answered();
      if (message.type !== "episodes" || answer.type !== "episodes.stored") return;
      for (const { ticket } of message.rows) this.#invariants.acknowledged.add(ticket.episode);
    });
    return answer;
  }
}

export const simulatedTransport = (network: Network, life: Life): Transport => ({
  async listen(address, handler): Promise<Listener> {
    const { listening } = network;
    const peers = new ListenerPeers(handler);
    listening.set(address, {
      life,
      accept: (name, wire) => new WatchedPeer(name, wire, peers.handler, network, life),
    });
    const close = () => void listening.delete(address);
    life.onDeath.push(close);
    return {
      address,
      async close() {
        close();
        peers.closeAll();
      },
    };
  },

  async connect(address, handler): Promise<Peer> {
    const host = new URL(address).hostname;
    await life.sleep(Math.max(network.delayMs(), network.isolatedMs(life.name, host)), `connects to ${address}`);
    const server = network.listening.get(address);
    if (server === undefined) throw new Error(`cannot connect to ${address}: nothing listens there`);
    const link = new Link(network, life.name, server.life.name);
    const [nearWire, farWire] = [new SimulatedWire(network, link, life), new SimulatedWire(network, link, server.life)];
    const near = new WatchedPeer(address, nearWire, handler, network, life);
    const far = server.accept(life.name, farWire);
    nearWire.join(near, far, server.life);
    farWire.join(far, near, life);
    network.world.schedule(server.life, 0, `accepts ${life.name}`, () => far.start());
    near.start();
    return near;
  },
});

/**
 * Watches the learner's end of one connection to a sampler. It checks that the learner sends a ticket only if the sampler has acknowledged the
 * digest of a policy version that may play the ticket.
 */
function grantWitness(sampler: string, invariants: Invariants) {
  /** Digest by announced version. */
  const announced = new Map<number, string>();
  /** The newest version that the sampler acknowledged; null if there is none, or if the sampler last loaded other bytes. */
  let holds: number | null = null;
  return {
    sent(message: Tell): void {
      if (message.type === "weights") announced.set(message.version, message.digest);
      if (message.type !== "tickets") return;
      for (const { episode, version, exact } of message.tickets) {
        if (holds !== null && (exact ? holds === version : holds >= version)) continue;
        const wanted = `${exact ? "exactly" : "at least"} ${version}`;
        invariants.broken(5, `${sampler} holds version ${holds} and got ${episode} of ${wanted}`);
      }
    },

    /** A handler that shows every message to this witness before `handler`. */
    watching: (handler: Handler): Handler => ({
      opened: (peer) => handler.opened?.(peer),
      told(peer, message) {
        if (message.type === "weights.loaded") {
          const isRight = announced.get(message.version) === message.digest;
          holds = isRight ? Math.max(message.version, holds ?? message.version) : null;
        }
        handler.told(peer, message);
      },
      asked: (peer, message) => handler.asked(peer, message),
      closed: (peer, reason) => handler.closed?.(peer, reason),
    }),
  };
}
