/**
 * Joins a run on another machine as a guest: a sampler or an env server. The run's gate gives the guest its settings. All connections of
 * the guest go through the gate; in a run on a NATS broker, its messages go through the broker instead. A guest may leave at any time: the
 * run's other actors do its unfinished work again.
 *
 * - The guest stays until the run ends or its owner stops it. If it cannot reach the run for `patienceMs`, it exits with code 1. A
 *   refused token ends it at once.
 */
import { hostname } from "node:os";
import { z } from "zod";
import type { ActorKind } from "../actor.ts";
import { parsedJson } from "../checkpoint/json.ts";
import { pause, realClock } from "../clock.ts";
import { RunConfig } from "../config/config.ts";
import { messageOf, schemaFaults } from "../errors.ts";
import { makeLog } from "../log.ts";
import { withLocalModules } from "../play/env-modules.ts";
import { PROTOCOL_VERSION, type Tell } from "../protocol.ts";
import { bearer, noProxyHere } from "../transport/address.ts";
import { offering } from "../transport/offer.ts";
import { parseAddress } from "../transport/socket-wire.ts";
import type { ClientTls } from "../transport/tls.ts";
import type { Transport } from "../transport/transport.ts";
import { runActorLife } from "./life.ts";
import { ActorSettings } from "./settings.ts";

export interface JoinOptions {
  /** ws://HOST:PORT or wss://HOST:PORT. */
  readonly address: string;
  readonly token: string;
  readonly tls: ClientTls;
  /** How long the run may be unreachable, at the start and later. */
  readonly patienceMs: number;
  /** Changes the run's config for this machine. */
  readonly adapt: (config: RunConfig) => RunConfig;
  /** Writes a line for people. */
  readonly say: (level: "info" | "warning" | "error", text: string, stack?: string) => void;
}

export interface Joined {
  readonly run: string;
  readonly actor: string;
  leave(reason: string): Promise<void>;
}

/** What the gate answers to `GET /join`. */
export const JoinSettings = ActorSettings.omit({ actor: true, supervisor: true, token: true, settings: true }).extend({
  protocol: z.number().int(),
  config: z.unknown(),
  /** For a run on a NATS broker: the supervisor's address and the token there. Else messages go through the gate. */
  broker: z.strictObject({ supervisor: z.string(), token: z.string() }).nullable(),
});
export type JoinSettings = z.infer<typeof JoinSettings>;

const RETRY_MS = 1000;

/** A failure that another attempt would not change. */
class FinalJoinError extends Error {}

/** @throws {Error} in one line, if the run cannot be reached in time or refuses. */
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
  const log = makeLog({
    actor,
    level: actorSettings.logLevel,
    secrets: [token, actorSettings.token],
    date: () => new Date(),
    write(line) {
      const { level, text, stack } = JSON.parse(line);
      say(level, text, stack);
    },
  });
  let lostAtMs: number | null = realClock.now();
  const life = runActorLife({
    actorSettings,
    role: kind.role,
    log,
    tls,
    start: (context) =>
      kind.start(config, {
        ...context,
        ...(broker === null ? { listen: `${ws}/offer/${actor}` } : {}),
        folder: "",
        host: "process",
        guest: { weightsFrom: http, token, tls },
      }),
    // At a broker every actor can be reached directly.
    ...(broker === null
      ? {
          wrap: (transport: Transport) =>
            offering({ transport, clock: realClock, failed: (detail) => log.debug("offer", detail) }),
          translate: (message: Tell) => throughGate(message, path),
        }
      : {}),
    connected() {
      if (lostAtMs !== null) say("info", `joined ${actorSettings.run} at ${options.address} as ${actor}`);
      lostAtMs = null;
    },
    unreachable(detail, attempt) {
      lostAtMs ??= realClock.now();
      const lostMs = realClock.now() - lostAtMs;
      const text = detail.replace(/^Error: /, "");
      if (attempt === 1) say("warning", text);
      if (lostMs < patienceMs && !detail.includes("the token")) return;
      say("error", `${text}; given up after ${Math.round(lostMs / 1000)} s`);
      process.exit(1);
    },
  });
  await life.started;
  return { run: actorSettings.run, actor, leave: (reason) => life.leave(reason) };
}

/** @throws {Error} in one line, if the run has the same protocol, but a config of another version of Bunraku */
function configOf(config: unknown, address: string): RunConfig {
  const parsed = RunConfig.safeParse(config);
  if (parsed.success) return parsed.data;
  const faults = schemaFaults(parsed.error, "config");
  throw new Error(
    `cannot join ${address}: its config is of another version of Bunraku (${faults}); use the run's version`,
  );
}

/** A roster whose actors are all reached through the gate, by name. */
function throughGate(message: Tell, path: (place: string) => string): Tell {
  if (message.type !== "roster") return message;
  const { learner, envServers } = message;
  return {
    type: "roster",
    metricsSink: null,
    learner: learner === null ? null : path("actors/learner"),
    envServers: envServers.map((server) => ({ actor: server.actor, url: path(`actors/${server.actor}`) })),
  };
}

/** A name that is unique in the run and contains this machine's. */
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

/** A fault of the connection, with what to do about it. A fault of the certificates stays however often the guest asks. */
function joinFault(error: unknown, { protocol, host, hostname }: URL, { ca }: ClientTls): Error {
  // Bun's advice is for programs.
  const text = messageOf(error).replace(/ For more information, pass `verbose: true`.*$/, "");
  if (text.includes("ALTNAME_INVALID")) {
    const advice = "give --join a name or an address that the certificate names";
    return new FinalJoinError(`the gate's certificate is not for ${hostname}; ${advice}`);
  }
  if (text.includes("EPROTO")) return new FinalJoinError(`${text} Without TLS the address begins with ws://`);
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
  if (!settings.success) throw new FinalJoinError("the answer is not that of a Bunraku run");
  if (settings.data.protocol !== PROTOCOL_VERSION) {
    const { protocol } = settings.data;
    throw new FinalJoinError(
      `the run speaks protocol ${protocol}, this program ${PROTOCOL_VERSION}; use the run's version of Bunraku`,
    );
  }
  return settings.data;
}
