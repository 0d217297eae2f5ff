/**
 * Hosts on one machine: network namespaces with an address each, connected by virtual cables (veth) and a bridge. A cable can be cut.
 * Only the network is separate: the hosts share disk and memory. Needs Linux and root.
 */
export class Hosts {
  readonly #bridge = `bun${process.pid}`;
  readonly #names: readonly string[];

  /** @returns null if this account cannot make such hosts. */
  static build(count: number): Hosts | null {
    const hosts = new Hosts(count);
    if (process.platform === "linux" && hosts.#build()) return hosts;
    hosts.remove();
    return null;
  }

  private constructor(count: number) {
    this.#names = Array.from({ length: count }, (_, host) => `bunraku-${process.pid}-${host}`);
  }

  address(host: number): string {
    return `10.177.${process.pid % 256}.${host + 1}`;
  }

  /** Words before a command that should run on this host. */
  on(host: number): string[] {
    return ["ip", "netns", "exec", this.#names[host]!];
  }

  /** Cuts the host's cable: packets are lost, connections stay open. */
  cut(host: number): void {
    ip("link", "set", this.#cable(host), "down");
  }

  heal(host: number): void {
    ip("link", "set", this.#cable(host), "up");
  }

  remove(): void {
    for (const name of this.#names) ip("netns", "del", name);
    ip("link", "del", this.#bridge);
  }

  #cable(host: number): string {
    return `v${process.pid}-${host}`;
  }

  #build(): boolean {
    if (!ip("link", "add", this.#bridge, "type", "bridge") || !ip("link", "set", this.#bridge, "up")) return false;
    return this.#names.every(
      (name, host) =>
        ip("netns", "add", name) &&
        ip("link", "add", this.#cable(host), "type", "veth", "peer", "name", "eth0", "netns", name) &&
        ip("link", "set", this.#cable(host), "master", this.#bridge, "up") &&
        ip("-n", name, "addr", "add", `${this.address(host)}/24`, "dev", "eth0") &&
        ip("-n", name, "link", "set", "eth0", "up") &&
        ip("-n", name, "link", "set", "lo", "up"),
    );
  }
}

function ip(...args: string[]): boolean {
  return Bun.spawnSync(["ip", ...args], { stderr: "ignore" }).success;
}
