/** Questions about addresses: does only this machine reach it, is it at a broker? Knows no transport. */

/**
 * Whether only this machine can reach the host.
 *
 * @param host  as people or URLs write it: "127.0.0.1", "::1", "[::1]", "localhost"
 */
export const isLoopback = (host: string): boolean =>
  ["localhost", "::1", "[::1]"].includes(host) || /^127(\.\d{1,3}){3}$/.test(host);

/** Any free port of this machine. */
export const ANY_PORT = "ws://127.0.0.1:0";

/** Whether messages to this address go through a NATS broker. */
export const isBroker = (address: string): boolean => /^(nats|tls):/.test(address);

/** A free address of the same kind: any port of this machine, or any name at the same broker. */
export const anyBeside = (address: string): string => (isBroker(address) ? new URL("/", address).href : ANY_PORT);

/** The HTTP address of an actor that listens with `fetch`. */
export const httpOf = (address: string): string =>
  isBroker(address) ? `http://${new URL(address).searchParams.get("http")}` : address.replace(/^ws/, "http");
