/** What an address says: whether only this machine can reach it, whether it is at a broker. Knows no transport. */

/**
 * Whether only this machine can reach it.
 *
 * @param host  as a person writes it, or as a URL holds it: "127.0.0.1", "::1", "[::1]", "localhost"
 */
export const isLoopback = (host: string): boolean =>
  ["localhost", "::1", "[::1]"].includes(host) || /^127(\.\d{1,3}){3}$/.test(host);

/** Any free port of this machine. */
export const HERE = "ws://127.0.0.1:0";

/** Whether it is the address of a broker, or of somebody there. */
export const isBroker = (address: string): boolean => /^(nats|tls):/.test(address);

/** Any free address beside this one: another port of this machine, another name at the same broker. */
export const anyBeside = (address: string): string => (isBroker(address) ? new URL("/", address).href : HERE);

/** Where an actor that listens with `fetch` serves HTTP. */
export const httpOf = (address: string): string =>
  isBroker(address) ? `http://${new URL(address).searchParams.get("http")}` : address.replace(/^ws/, "http");
