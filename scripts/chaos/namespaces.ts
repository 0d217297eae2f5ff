/**
 * Hosts on one machine: network namespaces with an address each, on one bridge, whose cables can be pulled. Linux, as root. What
 * one says to another goes over a virtual cable; nothing is shared but the disk that the program is on.
 */
export class Hosts {
  readonly #bridge = `bun${process.pid}`;
  readonly #names: readonly string[];

  /** @returns null where this account may not make them. */
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

  /** Words before a command that is to run there. */
  on(host: number): string[] {
    return ["ip", "netns", "exec", this.#names[host]!];
  }

  /** Nobody is told; what is sent is lost. */
  pull(host: number): void {
    ip("link", "set", this.#cable(host), "down");
  }

  plug(host: number): void {
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
