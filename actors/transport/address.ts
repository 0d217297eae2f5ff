/** Reads addresses: who can reach an address, and whether it is at a NATS broker. Compares tokens, and makes an HTTP header from a token. */
import { createHash, timingSafeEqual } from "node:crypto";

/**
 * True if only this machine can reach the host.
 *
 * @param host  as people or URLs write it: "127.0.0.1", "::1", "[::1]", "localhost"
 */
export const isLoopback = (host: string): boolean =>
  ["localhost", "::1", "[::1]"].includes(host) || /^127(\.\d{1,3}){3}$/.test(host);

/** Options for `fetch`. Without them Bun sends requests to this machine through HTTP_PROXY. Bun's types lack `false`, so the code casts it. */
export const noProxyHere = (url: string | URL): { proxy?: never } =>
  isLoopback(new URL(url).hostname) ? { proxy: false as never } : {};

export const ANY_PORT = "ws://127.0.0.1:0";

/** True if the address of a WebSocket uses TLS. A scheme may have capitals. */
export const isEncrypted = (address: string): boolean => new URL(address).protocol === "wss:";

/** True if messages to this address go through a NATS broker. */
export const isBroker = (address: string): boolean => /^(nats|tls):/.test(address);

/** An address at which an actor can listen: a free name at the same broker, or without a broker a free port of this machine. */
export const freeAddressLike = (address: string): string => (isBroker(address) ? new URL("/", address).href : ANY_PORT);

/** The HTTP address of an actor that listens with `fetch`. */
export const httpOf = (address: string): string =>
  isBroker(address) ? `http://${new URL(address).searchParams.get("http")}` : address.replace(/^ws/, "http");

/**
 * @returns `name`: name of the listener at the broker; null: the address has no name
 * @throws {Error} if the address is neither `nats://HOST:PORT/NAME` nor `tls://HOST:PORT/NAME`, which requires TLS. The name is optional.
 */
export function parseNatsAddress(address: string): { url: URL; name: string | null } {
  const url = URL.parse(address);
  const name = /^\/?([\w-]{0,64})$/.exec(url?.pathname ?? "!")?.[1];
  if (url === null || !["nats:", "tls:"].includes(url.protocol) || url.host === "" || name === undefined) {
    throw new Error(`cannot use ${address}: expected nats://HOST:PORT/NAME, or tls://HOST:PORT/NAME for TLS`);
  }
  return { url, name: name === "" ? null : name };
}

/** Compares two secrets. The time of the comparison reveals neither where the secrets differ nor how long they are. */
export function sameSecret(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** True for printable ASCII without a space at either end. An HTTP header may change other texts. */
export const fitsHeader = (token: string): boolean => token === token.trim() && /^[ -~]+$/.test(token);

export const bearer = (token: string): string => `Bearer ${token}`.trim();
