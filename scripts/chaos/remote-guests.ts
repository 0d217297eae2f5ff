/** A sampler and an env server on two other hosts (network namespaces), lent to a run. The network to the run can be cut. */
import { Guest } from "./guest.ts";
import { Hosts } from "./namespaces.ts";

const LENT = ["sampler", "env-server"] as const;

export class RemoteGuests {
  readonly #hosts: Hosts;
  readonly #address: string;
  /** Environment of the run and of the guests. */
  readonly env = { BUNRAKU_TOKEN: crypto.randomUUID() };
  #guests: Guest[] = [];
  names: readonly string[] = [];

  /** @throws {Error} if network namespaces cannot be made: they need Linux and root */
  constructor() {
    const hosts = Hosts.build(1 + LENT.length);
    if (hosts === null) {
      throw new Error(
        "--cut-seconds needs network namespaces, and `ip netns` could not make them; run on Linux, as root",
      );
    }
    this.#hosts = hosts;
    this.#address = `ws://${hosts.address(0)}:7000`;
  }

  /** Words to put before the run's command, so that the run is on host 0. */
  get wrap(): string[] {
    return this.#hosts.on(0);
  }

  /** Flags of the run's command. */
  get flags(): string[] {
    return [`--join.listen=${this.#address}`];
  }

  get pids(): number[] {
    return this.#guests.map(({ pid }) => pid);
  }

  /** Starts both guests and resolves when they have joined. The run's gate must be open. */
  async join(): Promise<void> {
    const args = ["--join", this.#address];
    this.#guests = LENT.map((command, i) => new Guest(command, args, this.env, this.#hosts.on(i + 1)));
    this.names = await Promise.all(this.#guests.map((guest) => guest.joined()));
  }

  cut(): void {
    for (const i of LENT.keys()) this.#hosts.cut(i + 1);
  }

  heal(): void {
    for (const i of LENT.keys()) this.#hosts.heal(i + 1);
  }

  /** After the run: resolves when both guests have ended. After `withinMs` it kills them. @throws {Error} if one ended badly */
  async ended(withinMs: number): Promise<void> {
    const late = setTimeout(() => this.remove(), withinMs);
    const ended = await Promise.all(this.#guests.map((guest) => guest.ended));
    clearTimeout(late);
    for (const { code, err } of ended) {
      if (code !== 0) throw new Error(`a guest ended with ${code}: ${err.trim().split("\n").at(-1)}`);
    }
  }

  /** Kills the guests and removes their hosts. */
  remove(): void {
    for (const guest of this.#guests) guest.kill("SIGKILL");
    this.#hosts.remove();
  }
}
