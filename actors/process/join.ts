/**
 * Joins a run on another machine as a guest: a sampler or an env server. The run's gate gives the guest its settings. All connections of
 * the guest go through the gate. In a run on a NATS broker, the guest's messages go through the broker instead. A guest may leave at any
 * time. The run then repeats the guest's unfinished work on other actors.
 *
 * - The guest stays until the run ends or a person stops the guest. If the guest cannot reach the run for `patienceMs`, it exits with code 1.
 *   If the run refuses the token, the guest ends at once.
 */
import { hostname } from "node:os";
import { z } from "zod";
import type { ActorKind, Order } from "../actor.ts";
import { parsedJson } from "../checkpoint/json.ts";
import { pause, realClock } from "../clock.ts";
import { RunConfig } from "../config/config.ts";
import { messageOf, schemaFaults } from "../errors.ts";
import { withLocalModules } from "../play/env-modules.ts";
import { PROTOCOL_VERSION } from "../protocol.ts";
import { bearer, noProxyHere } from "../transport/address.ts";
import { offering } from "../transport/offer.ts";
import { parseAddress } from "../transport/socket-wire.ts";
import type { ClientTls } from "../transport/tls.ts";
import { TokenRefused } from "../transport/transport.ts";
import { runActorLife } from "./life.ts";
import { ActorSettings } from "./settings.ts";

export interface JoinOptions {
  /** ws://HOST:PORT or wss://HOST:PORT. */
  readonly address: string;
  readonly token: string;
  readonly tls: ClientTls;
  /** The guest ends if it cannot reach the run for longer than this, at the start or later. */
  readonly patienceMs: number;
  /** Returns the run's config with the changes for this machine. */
  readonly adapt: (config: RunConfig) => RunConfig;
  /** Writes a line for people. */
  readonly say: (level: "info" | "warning" | "error", text: string, stack?: string) => void;
}

export interface Joined {
  readonly run: string;
  readonly actor: string;
  leave(reason: string): Promise<void>;
}

/** The gate's answer to `GET /join`. */
export const JoinSettings = ActorSettings.omit({ actor: true, supervisor: true, token: true, settings: true }).extend({
  protocol: z.number().int(),
  config: z.unknown(),
  /** The supervisor's address at the run's NATS broker, and the token of the broker; null: messages go through the gate. */
  broker: z.strictObject({ supervisor: z.string(), token: z.string() }).nullable(),
});
export type JoinSettings = z.infer<typeof JoinSettings>;

const RETRY_MS = 1000;

/** An error that another attempt would not change. */
class FinalJoinError extends Error {}

/** @throws {Error} with a message of one line, if the guest cannot reach the run in time or the run refuses the guest. */
export async function join(kind: ActorKind, options: JoinOptions): Promise<Joined> {
  const { token, tls, patienceMs, say } = options;
  const { protocol, host } = parseAddress(options.address);
  const ws = `${protocol}//${host}`;
  const http = ws.replace(/^ws/, "http");
  const { config: runConfig, protocol: _, broker, ...settings } = await joinSettings(kind, http, options);
  const config = withLocalModules(options.adapt(configOf(runConfig, options.address)));
  const actor = nameOf(kind.role);
  const path = (place: string) => `${ws}/${place}?as=${actor}`;
  const actorSettings = { ...settings, actor, ...(broker ?? { token, supervisor: path("actors/supervisor") }) };
  let lostAtMs: number | null = realClock.now();
  const life = runActorLife({
    actorSettings,
    role: kind.role,
    secrets: [token],
    write(line) {
      const { level, text, stack } = JSON.parse(line);
      say(level, text, stack);
    },
    tls,
    async start(context) {
      const here = { ...context, folder: "", host: "process", guest: { weightsFrom: http, token, tls } } as const;
      // With a broker, the guest reaches every actor without the gate.
      if (broker !== null) return kind.start(config, here);
      const failed = (detail: string) => context.log.debug("offer", detail);
      const transport = offering({ transport: context.transport, clock: realClock, failed });
      const running = await kind.start(config, { ...here, transport, listen: `${ws}/offer/${actor}` });
      return { ...running, told: (order) => running.told(throughGate(order, path)) };
    },
    connected() {
      if (lostAtMs !== null) say("info", `joined ${actorSettings.run} at ${options.address} as ${actor}`);
      lostAtMs = null;
    },
    unreachable(detail, attempt, error) {
      lostAtMs ??= realClock.now();
      const lostMs = realClock.now() - lostAtMs;
      const text = detail.replace(/^Error: /, "");
      if (attempt === 1) say("warning", text);
      if (lostMs < patienceMs && !(error instanceof TokenRefused)) return;
      say("error", `${text}; given up after ${Math.round(lostMs / 1000)} s`);
      process.exit(1);
    },
  });
  await life.started;
  return { run: actorSettings.run, actor, leave: (reason) => life.leave(reason) };
}

/** Checks the run's config. @throws {Error} with a message of one line, if the config is from another version of Bunraku that has the same protocol */
function configOf(config: unknown, address: string): RunConfig {
  const parsed = RunConfig.safeParse(config);
  if (parsed.success) return parsed.data;
  const faults = schemaFaults(parsed.error, "config");
  throw new Error(
    `cannot join ${address}: the run's config is of another version of Bunraku (${faults}); use the run's version`,
  );
}

/** Changes the addresses of a roster, so that the guest reaches each actor by name through the gate. */
function throughGate(message: Order, path: (place: string) => string): Order {
  if (message.type !== "roster") return message;
  const { learner, envServers } = message;
  return {
    type: "roster",
    metricsSink: null,
    learner: learner === null ? null : path("actors/learner"),
    envServers: envServers.map((server) => ({ actor: server.actor, url: path(`actors/${server.actor}`) })),
  };
}

/** An actor name that is unique in the run and contains this machine's host name. */
function nameOf(role: string): string {
  const host = hostname()
    .replaceAll(/[^\w.-]/g, "-")
    .slice(0, 32);
  return `${role}-${host}-${crypto.randomUUID().slice(0, 6)}`;
}

async function joinSettings(
  { role }: ActorKind,
  http: string,
  { token, tls, patienceMs, say }: JoinOptions,
): Promise<JoinSettings> {
  const startedAtMs = realClock.now();
  for (let attempt = 1; ; attempt++) {
    try {
      return await askGate(`${http}/join?role=${role}`, token, tls);
    } catch (error) {
      const text = `cannot join ${http.replace(/^http/, "ws")}: ${messageOf(error)}`;
      if (error instanceof FinalJoinError || realClock.now() - startedAtMs >= patienceMs) throw new Error(text);
      if (attempt === 1) say("warning", `${text}; trying for ${Math.round(patienceMs / 1000)} s`);
    }
    await pause(realClock, RETRY_MS);
  }
}

/** A connection error with advice. An error of the certificates is final, because another attempt would not change it. */
function joinFault(error: unknown, { protocol, host, hostname }: URL, { ca }: ClientTls): Error {
  // Removes Bun's advice, which is for programmers.
  const text = messageOf(error).replace(/ For more information, pass `verbose: true`.*$/, "");
  if (text.includes("ALTNAME_INVALID")) {
    const advice = "give --join a name or an address that the certificate names";
    return new FinalJoinError(`the gate's certificate is not for ${hostname}; ${advice}`);
  }
  if (text.includes("EPROTO")) return new FinalJoinError(`${text} If the gate does not use TLS, write ws://${host}`);
  if (/certificate|TLS|SSL/i.test(text)) {
    const advice = ca === undefined ? "--ca FILE names the CA certificate" : "--ca names the certificate of another CA";
    return new FinalJoinError(`${text} (${advice})`);
  }
  const isClosed = protocol === "http:" && text.includes("ECONNRESET");
  return new Error(isClosed ? `${text} If the gate uses TLS, write wss://${host}` : text);
}

async function askGate(url: string, token: string, tls: ClientTls): Promise<JoinSettings> {
  const init = { headers: { Authorization: bearer(token) }, redirect: "error", tls, ...noProxyHere(url) } as const;
  const answer = await fetch(url, { ...init, signal: AbortSignal.timeout(10_000) }).catch((error: unknown) => {
    throw joinFault(error, new URL(url), tls);
  });
  const text = await answer.text();
  const said = `${text.trim().slice(0, 200)} (HTTP ${answer.status})`.trim();
  if (answer.status >= 500) throw new Error(said);
  if (!answer.ok) throw new FinalJoinError(said);
  const settings = JoinSettings.safeParse(parsedJson(text));
  if (!settings.success) throw new FinalJoinError("the answer is not from a Bunraku run");
  if (settings.data.protocol !== PROTOCOL_VERSION) {
    const { protocol } = settings.data;
    throw new FinalJoinError(
      `the run uses protocol ${protocol}, but this program uses protocol ${PROTOCOL_VERSION}; use the run's version of Bunraku`,
    );
  }
  return settings.data;
}
