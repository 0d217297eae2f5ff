/**
 * The model of a simulated run: a few numbers that every episode changes, and a player whose moves follow from these numbers and the
 * episode's coins. It is trivial, but depends on the same inputs as the real model.
 */
import type { Remote } from "../../actors/process/worker-rpc.ts";
import type { Messages } from "../../actors/protocol.ts";
import type { PolicyMethods } from "../../actors/sampler/policy.ts";
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import { hash64 } from "../../model/rng.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { rawReward, type Trajectory } from "../../model/trajectory.ts";
import { markOf } from "./invariants.ts";
import type { Machine } from "./machine.ts";
import type { Life } from "./world.ts";

const tokenizer = new Tokenizer();
const MOVES = ["Left", "Down", "Right", "Up"].map((move) =>
  builtinDialogue(tokenizer).replyTokens(`<think>${move}</think><answer>${move}</answer>`, "<think>"),
);

export const digestOf = (values: Float32Array): string =>
  new Bun.CryptoHasher("sha256").update(new Uint8Array(values.slice().buffer)).digest("hex");

export class SimulatedPolicy {
  readonly #life: Life;
  readonly #machine: Machine;
  readonly #open = new Set<string>();
  /** Digest of the weights in use; empty before the first load. */
  #digest = "";
  /** Version of the weights in use, and the process that published it. */
  #held: { readonly owner: Life; readonly version: number } | null = null;

  constructor(life: Life, machine: Machine) {
    this.#life = life;
    this.#machine = machine;
  }

  get openCount(): number {
    return this.#open.size;
  }

  readonly methods: Omit<Remote<PolicyMethods>, "written"> = {
    start: async () => "simulated",
    load: (message) => this.#load(message),
    open: async (sequence) => {
      if (this.#open.has(sequence)) this.#machine.invariants.broken(8, `${this.#life.name} opened ${sequence} twice`);
      this.#open.add(sequence);
    },
    close: async (sequence) => void this.#open.delete(sequence),
    reply: (_, request) => this.#reply(request),
  };

  async #load({ version, digest, location }: Messages["weights"]): Promise<string> {
    const { world, memory, invariants, troubles } = this.#machine;
    if (location.kind !== "shared") throw new Error(`the simulation has no ${location.kind} weights`);
    const { path } = location;
    await this.#life.sleep(world.between(5, 100), `loads ${path}`);
    const found = memory.get(path);
    if (found === undefined || !found.owner.alive) throw new Error(`no weights at ${path}`);
    const values = found.values.slice();
    if (world.uniform() < troubles.corrupt) values[0]! += 1;
    const loaded = digestOf(values);
    if (loaded !== digest) return loaded;
    if (this.#open.size > 0) invariants.broken(5, `${this.#life.name} loaded weights in the middle of episodes`);
    if (this.#held?.owner === found.owner && this.#held.version > version)
      invariants.broken(5, `${this.#life.name} went from version ${this.#held.version} back to ${version}`);
    this.#held = { owner: found.owner, version };
    this.#digest = loaded;
    return loaded;
  }

  async #reply({ coins, coinsFrom }: ReplyRequest): Promise<Reply> {
    const { world, troubles, defect } = this.#machine;
    const digest = this.#digest;
    await this.#life.sleep(world.between(20, 400), "replies");
    // New weights are used in the middle of episodes.
    if (defect === "mixes versions") this.#digest = hash64(digest).join("").padStart(64, "a").slice(-64);
    const [coin] = hash64(`${digest} ${coins.seed} ${coins.episode} ${coinsFrom}`);
    const tokens = [...MOVES[coin % MOVES.length]!];
    const poisoned = world.uniform() < troubles.poison;
    return { tokens, logProbs: tokens.map(() => (poisoned ? Number.NaN : markOf(digest))), cut: false };
  }
}

/** One update of the numbers: a function of the numbers and of the trajectories, in order. */
export function learn(values: Float32Array, played: readonly Trajectory[]): void {
  for (const [i, trajectory] of played.entries()) {
    const [word] = hash64(`${i} ${trajectory.tokens} ${trajectory.digest}`);
    const at = word % values.length;
    values[at] = Math.fround(values[at]! + rawReward(trajectory) + 0.25);
  }
}
