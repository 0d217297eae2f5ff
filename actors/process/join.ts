/**
 * A sampler or env server that this machine lends to a run elsewhere. Its settings come from the run's gate, and everything it
 * says goes through that one address; it comes and goes as its owner likes.
 *
 * - It stays until the run is over, its owner stops it, or the run could not be reached for `patienceMs`: then it says so, and
 *   ends with exit code 1. A token that is refused ends it at once.
 * - What it had been given to play is played by others when it goes: nothing is lost but time.
 */
import { hostname } from "node:os";
import { z } from "zod";
import type { ActorKind } from "../actor.ts";
import { realClock } from "../clock.ts";
import { RunConfig } from "../config/config.ts";
import { describeError } from "../errors.ts";
import { makeLog } from "../log.ts";
import { PROTOCOL_VERSION, type Tell } from "../protocol.ts";
import { offering } from "../transport/offer.ts";
import { parseAddress } from "../transport/socket-wire.ts";
import type { ClientTls } from "../transport/tls.ts";
import { bearer } from "../transport/token.ts";
import type { Transport } from "../transport/transport.ts";
import { live } from "./life.ts";
import { ActorSettings } from "./settings.ts";

export interface JoinOptions {
  /** ws://HOST:PORT or wss://HOST:PORT. */
  readonly address: string;
  readonly token: string;
  readonly tls: ClientTls;
  /** How long the run may be out of reach, at the start and later. */
  readonly patienceMs: number;
  /** What of the run's config is another matter on this machine. */
  readonly adapt: (config: RunConfig) => RunConfig;
  /** For people. `stack`: where it was thrown, if it was. */
  readonly say: (level: "info" | "warning" | "error", text: string, stack?: string) => void;
}

/** Who has joined, and how to leave. */
export interface Joined {
  readonly run: string;
  readonly actor: string;
  leave(reason: string): Promise<void>;
}

/** What the gate tells a newcomer. */
export const JoinSettings = ActorSettings.omit({ actor: true, supervisor: true, token: true, settings: true }).extend({
  protocol: z.number().int(),
  config: z.unknown(),
  /** Where this run's messages go, if not through the gate, and what is asked for there. */
  broker: z.strictObject({ supervisor: z.string(), token: z.string() }).nullable(),
});
export type JoinSettings = z.infer<typeof JoinSettings>;

const RETRY_MS = 1000;

/** Something that waiting does not change. */
class Hopeless extends Error {}

/** @throws {Error} in one line, if the run cannot be reached in time or does not want us. */
export async function join(kind: ActorKind, options: JoinOptions): Promise<Joined> {
  const { token, tls, patienceMs, say } = options;
  const { protocol, host } = parseAddress(options.address);
  const ws = `${protocol}//${host}`;
  const http = ws.replace(/^ws/, "http");
  const { config: given, protocol: _, broker, ...newcomer } = await born(kind, http, options);
  const config = options.adapt(configOf(given, options.address));
  const actor = nameOf(kind.role);
  const path = (place: string) => `${ws}/${place}?as=${actor}`;
  const actorSettings = { ...newcomer, actor, ...(broker ?? { token, supervisor: path("actors/supervisor") }) };
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
  const life = live({
    actorSettings,
    role: kind.role,
    log,
    tls,
    start: (context) =>
      kind.start(config, {
        ...context,
        ...(broker === null ? { listen: `${ws}/offer/${actor}` } : {}),
        folder: "",
        threads: true,
        guest: { weightsFrom: http, token, tls },
      }),
    // At a broker everyone can be reached.
    ...(broker === null
      ? {
          wrap: (transport: Transport) =>
            offering({ transport, clock: realClock, failed: (detail) => log.debug("offer", detail) }),
          heard: (message: Tell) => throughTheGate(message, path),
        }
      : {}),
    connected() {
      if (lostAtMs !== null) say("info", `joined ${actorSettings.run} at ${options.address} as ${actor}`);
      lostAtMs = null;
    },
    unreachable(detail, attempt) {
      lostAtMs ??= realClock.now();
      const lostMs = realClock.now() - lostAtMs;
      if (attempt === 1) say("warning", detail);
      if (lostMs < patienceMs && !detail.includes("the token")) return;
      say("error", `${detail}; given up after ${Math.round(lostMs / 1000)} s`);
      process.exit(1);
    },
  });
  await life.started;
  return { run: actorSettings.run, actor, leave: (reason) => life.leave(reason) };
}

/** @throws {Error} in one line: the run is of another version, though it speaks as we do */
function configOf(given: unknown, address: string): RunConfig {
  const parsed = RunConfig.safeParse(given);
  if (parsed.success) return parsed.data;
  const [{ path, message } = { path: [], message: "" }] = parsed.error.issues;
  throw new Error(
    `cannot join ${address}: its config is not of this version (${path.join(".") || "config"}: ${message})`,
  );
}

/** Everyone is behind the same door, by name. */
function throughTheGate(message: Tell, path: (place: string) => string): Tell {
  if (message.type !== "roster") return message;
  const { learner, envServers } = message;
  return {
    type: "roster",
    metricsSink: null,
    learner: learner === null ? null : path("actors/learner"),
    envServers: envServers.map((server) => ({ actor: server.actor, url: path(`actors/${server.actor}`) })),
  };
}

/** Unique in the run, and telling where it is. */
function nameOf(role: string): string {
  const host = hostname()
    .replaceAll(/[^\w.-]/g, "-")
    .slice(0, 32);
  return `${role}-${host}-${crypto.randomUUID().slice(0, 6)}`;
}

async function born(
  { role }: ActorKind,
  http: string,
  { token, tls, patienceMs, say }: JoinOptions,
): Promise<JoinSettings> {
  const began = realClock.now();
  for (let attempt = 1; ; attempt++) {
    try {
      return await askGate(`${http}/join?role=${role}`, token, tls);
    } catch (error) {
      const text = `cannot join ${http.replace(/^http/, "ws")}: ${describeError(error).replace(/^\w*: /, "")}`;
      if (error instanceof Hopeless || realClock.now() - began >= patienceMs) throw new Error(text);
      if (attempt === 1) say("warning", `${text}; trying for ${Math.round(patienceMs / 1000)} s`);
    }
    await new Promise<void>((resume) => realClock.after(RETRY_MS, resume));
  }
}

async function askGate(url: string, token: string, tls: ClientTls): Promise<JoinSettings> {
  const init = { headers: { Authorization: bearer(token) }, redirect: "error", tls } as const;
  const answer = await fetch(url, { ...init, signal: AbortSignal.timeout(10_000) }).catch((error: unknown) => {
    const text = describeError(error);
    throw /certificate|TLS|SSL/i.test(text) ? new Hopeless(`${text} (--ca FILE names whom to trust)`) : error;
  });
  const text = await answer.text();
  if (answer.status >= 500) throw new Error(text.trim());
  if (!answer.ok) throw new Hopeless(`${text.trim().slice(0, 200)} (HTTP ${answer.status})`);
  const newcomer = JoinSettings.safeParse(JSON.parse(text));
  if (!newcomer.success) throw new Hopeless(`it answered with something else than a run of Bunraku`);
  if (newcomer.data.protocol !== PROTOCOL_VERSION) {
    const { protocol } = newcomer.data;
    throw new Hopeless(`the run speaks protocol ${protocol}, we speak ${PROTOCOL_VERSION}; use its version of Bunraku`);
  }
  return newcomer.data;
}
