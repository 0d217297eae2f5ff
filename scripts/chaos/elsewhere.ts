/** A sampler and an env server that two other hosts lend to the run, and the network between, which can be cut. */
import { Guest } from "./guest.ts";
import { Hosts } from "./namespaces.ts";

const LENT = ["sampler", "env-server"] as const;

export class Elsewhere {
  readonly #hosts: Hosts;
  readonly #address: string;
  /** For the run, too. */
  readonly env = { BUNRAKU_TOKEN: crypto.randomUUID() };
  #guests: Guest[] = [];
  names: readonly string[] = [];

  /** @throws {Error} if this account may not make hosts. */
  static make(): Elsewhere {
    const hosts = Hosts.build(1 + LENT.length);
    if (hosts !== null) return new Elsewhere(hosts);
    throw new Error("--cut-seconds needs network namespaces (ip netns), which this account may not make");
  }

  private constructor(hosts: Hosts) {
    this.#hosts = hosts;
    this.#address = `ws://${hosts.address(0)}:7000`;
  }

  /** Words before the run's command, and its flags. */
  get wrap(): string[] {
    return this.#hosts.on(0);
  }
  get flags(): string[] {
    return [`--join.listen=${this.#address}`];
  }

  get pids(): number[] {
    return this.#guests.map(({ pid }) => pid);
  }

  /** Resolves when both are with the run, which must be open. */
  async join(): Promise<void> {
    const args = ["--join", this.#address];
    this.#guests = LENT.map((command, i) => new Guest(command, args, this.env, this.#hosts.on(i + 1)));
    this.names = await Promise.all(this.#guests.map((guest) => guest.joined()));
  }

  cut(): void {
    for (const i of LENT.keys()) this.#hosts.pull(i + 1);
  }

  heal(): void {
    for (const i of LENT.keys()) this.#hosts.plug(i + 1);
  }

  /** The run is over. @throws {Error} if a guest did not leave well */
  async left(withinMs: number): Promise<void> {
    const late = setTimeout(() => this.remove(), withinMs);
    for (const { code, err } of await Promise.all(this.#guests.map(({ ended }) => ended)))
      if (code !== 0) throw new Error(`a guest ended with ${code}: ${err.trim().split("\n").at(-1)}`);
    clearTimeout(late);
  }

  /** Nothing of it is left. */
  remove(): void {
    for (const guest of this.#guests) guest.kill("SIGKILL");
    this.#hosts.remove();
  }
}
