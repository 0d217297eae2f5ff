/** Samplers and a fake learner: messages in memory, a clock that the test moves, a policy that the test controls. */
import { EnvServer } from "../../../actors/env-server/env-server.ts";
import { Meter } from "../../../actors/metrics/meter.ts";
import type { Remote } from "../../../actors/process/worker-rpc.ts";
import type { Messages, Outcome, Ticket } from "../../../actors/protocol.ts";
import { EnvServerConnections } from "../../../actors/sampler/env-connections.ts";
import type { PolicyMethods } from "../../../actors/sampler/policy.ts";
import { Sampler } from "../../../actors/sampler/sampler.ts";
import { welcoming } from "../../../actors/transport/handshake.ts";
import { type Connection, connectForever } from "../../../actors/transport/reconnect.ts";
import type { Handler, Listener, Peer } from "../../../actors/transport/transport.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { envTag } from "../../../envs/registry.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import type { Reply } from "../../../model/decode/generate.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { aDigest, anOutcome, aTicket, aTrajectory, somePlayRules } from "../../fixtures.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";

export const RUN = "run";
export const LEASE_MS = 1000;
export const ASK_MS = 500;
const tokenizer = new Tokenizer();
const bandit = envTag("Bandit", {});
const rules = { turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1, formatPenalty: -0.1, think: true };

export const weights = (version: number, letter = "a"): Messages["weights"] => ({
  type: "weights",
  version,
  digest: aDigest(letter),
  byteLength: 4,
  location: { kind: "shared", path: `/${letter}`, byteOffset: 0, seal: { key: "0".repeat(32), tag: "0".repeat(32) } },
});

export const ticket = (episode: string, fields: Partial<Ticket> = {}): Ticket => aTicket({ episode, ...fields });

export const scored = (episode: string, version = 1): Outcome =>
  anOutcome({ trajectory: aTrajectory({ version }), finalObservation: episode });

/** One network, one clock. */
export class World {
  readonly clock = new FakeClock();
  readonly network = new MemoryNetwork();
  readonly transport = new MemoryTransport(this.network, {
    clock: this.clock,
    token: "a-token-for-tests",
    frameBytesMax: 1 << 20,
    queuedBytesMax: 1 << 20,
  });

  /** Waits until all sent messages have arrived, and all messages that they cause. */
  async settle(): Promise<void> {
    for (let i = 0; i < 40; i++) await new Promise((next) => setImmediate(next));
  }

  async after(ms: number): Promise<void> {
    await this.settle();
    this.clock.advance(ms);
    await this.settle();
  }

  connect(address: () => string, actor: string, handler: Handler): Connection {
    return connectForever({
      transport: this.transport,
      address,
      run: RUN,
      handler,
      clock: this.clock,
      uniform: () => 0.5,
      me: () => ({ actor, role: "sampler", url: null }),
    });
  }
}

/** Loads the digest that a test sets, and writes a reply when the test lets it. */
export class FakePolicy {
  readonly loads: number[] = [];
  /** Gives the digest of the loaded weights; `load` throws a returned error. Default: the published digest. */
  found: (message: Messages["weights"]) => string | Error | Promise<string> = ({ digest }) => digest;
  /** Replies wait for this. */
  gate: Promise<void> = Promise.resolve();
  /** Replies to these sequences wait for a gate of their own. */
  readonly gates = new Map<string, Promise<void>>();
  replying = 0;
  mostAtOnce = 0;
  readonly played: string[] = [];
  broken = false;

  readonly methods: Omit<Remote<PolicyMethods>, "written"> = {
    start: async () => "fake",
    load: async (message) => {
      this.loads.push(message.version);
      const found = await this.found(message);
      if (found instanceof Error) throw found;
      return found;
    },
    open: async (sequence) => void this.played.push(sequence),
    close: async () => {},
    reply: async (sequence): Promise<Reply> => {
      if (this.broken) throw new RangeError("logit 3 is NaN");
      this.mostAtOnce = Math.max(this.mostAtOnce, ++this.replying);
      await (this.gates.get(sequence) ?? this.gate);
      this.replying--;
      const tokens = builtinDialogue(tokenizer).replyTokens("<think>t</think><answer>Phoenix</answer>", "<think>");
      return { tokens, logProbs: tokens.map(() => -1), cut: false };
    },
  };
}

/** Holds replies back. @returns a function that lets them go */
export function hold(policy: FakePolicy): () => void {
  const { promise, resolve } = Promise.withResolvers<void>();
  policy.gate = promise;
  return resolve;
}

/** An env server of the bandit at an address of its own. */
export const bandits = (world: World, name: string) => envsOf(world, name, bandit);

export async function envsOf(
  world: World,
  name: string,
  tag: EnvTag,
  turnsMax = 1,
): Promise<{ server: EnvServer; listener: Listener }> {
  const server = new EnvServer({
    find: () => (seeds) => openEpisode(tag.open(seeds), { ...rules, turnsMax, actionsMax: turnsMax }),
    episodesMax: 100,
    idleMs: 60_000,
    answerMsMax: 1000,
    clock: world.clock,
    warn: () => {},
  });
  return { server, listener: await world.transport.listen(`memory:${name}`, welcoming(RUN, server)) };
}

/** A sampler that keeps looking for its learner. */
export function startSampler(
  world: World,
  {
    actor = "sampler-0",
    slots = 4,
    envs = ["env-0"],
    triesMax = 3,
    weightsBetween = "episodes" as "episodes" | "turns",
    tag = bandit,
  } = {},
) {
  const policy = new FakePolicy();
  const errors: string[] = [];
  const failures: unknown[] = [];
  const quiet = () => {};
  const envConnections = new EnvServerConnections({
    connect: (url, handler) => world.connect(() => url, actor, handler),
    waitMsMax: ASK_MS,
    clock: world.clock,
  });
  const roster = (names: readonly string[]) =>
    envConnections.update({
      type: "roster",
      learner: null,
      metricsSink: null,
      envServers: names.map((name) => ({ actor: name, url: `memory:${name}` })),
    });
  roster(envs);
  const sampler = new Sampler({
    actor,
    slots,
    dialogue: builtinDialogue(tokenizer),
    policy: policy.methods,
    envConnections,
    triesMax,
    askDeadlineMs: ASK_MS,
    rules: somePlayRules({ Bandit: 1 }),
    envTag: () => tag,
    weightsBetween,
    meter: new Meter(world.clock),
    log: { debug: quiet, info: quiet, warning: quiet, error: (kind, text) => void errors.push(`${kind}: ${text}`) },
    fail: (error) => void failures.push(error),
  });
  const connection = world.connect(() => "memory:learner", actor, sampler);
  return { policy, errors, failures, sampler, connection, roster };
}

type FromSampler = Messages["sampler.ready" | "sampler.leaving" | "weights.loaded" | "episode.finished"];

/** A learner that records what samplers say, and checks nothing. */
export class FakeLearner {
  readonly heard: FromSampler[] = [];
  readonly peers: Peer[] = [];
  /** The answer to `episode.finished`; undefined: there is never an answer. */
  answer: (message: Messages["episode.finished"]) => Messages["episode.taken" | "failed"] | undefined = ({
    episode,
  }) => ({
    type: "episode.taken",
    episode,
    fresh: true,
  });
  #listener: Listener | null = null;

  async listen(world: World): Promise<void> {
    const handler = welcoming(RUN, {
      joined: (peer) => void this.peers.push(peer),
      told: (_, message) => void this.heard.push(message as FromSampler),
      asked: (_, message) => {
        this.heard.push(message as FromSampler);
        return this.answer(message as Messages["episode.finished"]) ?? new Promise<never>(() => {});
      },
    });
    this.#listener = await world.transport.listen("memory:learner", handler);
  }

  close(): Promise<void> {
    return this.#listener!.close();
  }

  of<T extends FromSampler["type"]>(type: T): Messages[T][] {
    return this.heard.filter((message) => message.type === type) as Messages[T][];
  }

  tell(message: Messages["weights" | "tickets"]): void {
    this.peers.at(-1)!.tell(message);
  }

  play(...given: Ticket[]): void {
    this.tell({ type: "tickets", tickets: given, leaseMs: LEASE_MS });
  }
}
