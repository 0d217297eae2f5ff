/** A sampler whose messages are sent by a test. */
import type { Messages, Tell } from "../../../actors/protocol.ts";
import { sayHello } from "../../../actors/transport/handshake.ts";
import type { Peer } from "../../../actors/transport/transport.ts";
import { aDigest } from "../../fixtures.ts";
import { RUN, scored, type World } from "../sampler/stage.ts";

export class Hand {
  readonly told: Tell[] = [];
  peer!: Peer;
  readonly actor: string;
  readonly #world: World;

  constructor(world: World, actor: string) {
    this.#world = world;
    this.actor = actor;
  }

  async connect(role: "sampler" | "env-server" = "sampler"): Promise<this> {
    this.peer = await this.#world.transport.connect("memory:learner", {
      told: (_, message) => void this.told.push(message),
      asked: () => ({ type: "failed", code: "protocol", detail: "not asked" }),
    });
    await sayHello(this.peer, { actor: this.actor, role, url: null }, 5000, RUN);
    await this.#world.settle();
    return this;
  }

  /** Connects, and tells the learner of free slots and of loaded weights. */
  async ready(slots: number, version = 1, letter = "a"): Promise<this> {
    await this.connect();
    this.peer.tell({ type: "sampler.ready", actor: this.actor, slots });
    this.load(version, letter);
    await this.#world.settle();
    return this;
  }

  load(version: number, letter = "a"): void {
    this.peer.tell({ type: "weights.loaded", actor: this.actor, version, digest: aDigest(letter) });
  }

  get granted(): string[] {
    const messages = this.told.filter((message): message is Messages["tickets"] => message.type === "tickets");
    return messages.flatMap(({ tickets }) => tickets.map(({ episode, attempt }) => `${episode}/${attempt}`));
  }

  async finish(episode: string, attempt = 0): Promise<boolean | string> {
    const { actor } = this;
    const ask = { type: "episode.finished", actor, episode, attempt, outcome: scored(episode) } as const;
    const answer = await this.peer.ask(ask, 5000);
    await this.#world.settle();
    return answer.type === "failed" ? answer.detail : answer.fresh;
  }
}
