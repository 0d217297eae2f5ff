/**
 * A run's gate with everything around it: its tokens, its certificates, and the guests that came through it.
 *
 * - Without a token of the config (on loopback only) one is made, and kept in a file of the run's folder that nobody but its
 *   owner can read, for as long as the run goes on.
 */
import { randomBytes } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { realClock } from "../clock.ts";
import { type RunConfig, withoutSecrets } from "../config/config.ts";
import type { JoinSettings } from "../process/join.ts";
import { type ActorView, PROTOCOL_VERSION, type Tell } from "../protocol.ts";
import { type GuestEvent, Guests } from "../supervisor/guests.ts";
import { anyBeside, isBroker } from "../transport/address.ts";
import { welcoming } from "../transport/handshake.ts";
import { readPem, type ServerTls } from "../transport/tls.ts";
import type { Listener, Problem, Transport } from "../transport/transport.ts";
import { Gate, GUEST_ROLES, type Pass } from "./gate.ts";

export interface OpenGateOptions {
  readonly run: string;
  readonly folder: string;
  readonly config: RunConfig;
  /** Of the supervisor; with the token of the actors. */
  readonly transport: Transport;
  readonly actorsToken: string;
  /** Where an actor of this machine listens that guests may talk to; null: there is none of this name now. */
  readonly find: (name: string) => string | null;
  /** What a guest is told when it comes. */
  readonly greet: () => readonly Tell[];
  /** An env server was lent, or is gone. */
  readonly changed: () => void;
  readonly event: (event: GuestEvent) => void;
  readonly report: (problem: Problem) => void;
}

export interface OpenGate {
  /** What others give to `--join`. */
  readonly address: string;
  /** Where the token is that was made for this run; null if the config has one. */
  readonly tokenFile: string | null;
  /** Env servers that were lent, and where actors of this machine reach them. */
  readonly envServers: readonly { readonly actor: string; readonly url: string }[];
  readonly views: readonly ActorView[];
  tell(message: Tell): void;
  close(reason: string): Promise<void>;
}

const TOKEN_FILE = "join.token";

/** Time for guests to go when the run is over. */
const GOODBYE_MS = 2000;

/** @throws {Error} in one line, if it cannot listen there, or a certificate cannot be read */
export async function openGate(listen: string, options: OpenGateOptions): Promise<OpenGate> {
  const { run, folder, config, transport, actorsToken, greet, changed, event, report } = options;
  const { heartbeatMs, heartbeatDeadlineMs, progressDeadlineMs, logLevel } = config.supervisor;
  const { frameBytesMax, queuedBytesMax } = config.transport;
  const tls = listen.startsWith("wss:") ? tlsOf(config.join) : null;
  const { passes, made } = passesOf(config.join);
  const onBroker = isBroker(config.transport.listen);
  const guests = new Guests({
    clock: realClock,
    heartbeatMs,
    heartbeatDeadlineMs,
    progressDeadlineMs,
    greet,
    changed,
    event,
    cut: (name, reason) => gate.cut(name, reason),
  });
  // Who is let in as a sampler cannot say that it is an env server: there is a door for each.
  const doors = new Map<string, Listener>();
  let gate: Gate;
  try {
    for (const roles of [GUEST_ROLES, ...GUEST_ROLES.map((role) => [role])]) {
      doors.set(
        roles.join(),
        await transport.listen(anyBeside(config.transport.listen), welcoming(run, guests.admitting(roles))),
      );
    }
    gate = new Gate({
      listen,
      tls,
      passes,
      actorsToken,
      frameBytesMax,
      queuedBytesMax,
      report,
      clock: realClock,
      connectionsMax: config.join.connectionsMax,
      find: (name, roles) => (name === "supervisor" ? (doors.get(roles.join())?.address ?? null) : options.find(name)),
      joinSettings: (role): JoinSettings => ({
        protocol: PROTOCOL_VERSION,
        run,
        heartbeatMs,
        logLevel,
        frameBytesMax,
        queuedBytesMax,
        config: withoutSecrets(config),
        broker: onBroker ? { supervisor: doors.get(role)!.address, token: actorsToken } : null,
      }),
    });
  } catch (error) {
    // Nothing that was begun may keep the process.
    void guests.stop("the gate did not open");
    for (const door of doors.values()) await door.close();
    throw error;
  }
  const tokenFile = made === null ? null : joinPath(folder, TOKEN_FILE);
  if (tokenFile !== null) writeFileSync(tokenFile, `${made}\n`, { mode: 0o600 });
  return {
    address: gate.address,
    tokenFile,
    get envServers() {
      return guests.envServers.map(({ actor, url }) => ({ actor, url: onBroker ? url : gate.urlOf(actor) }));
    },
    get views() {
      return guests.views;
    },
    tell: (message) => guests.tell(message),
    async close(reason) {
      const late = Promise.withResolvers<void>();
      const cancel = realClock.after(GOODBYE_MS, late.resolve);
      await Promise.race([guests.stop(reason), late.promise]);
      cancel();
      await gate.close();
      for (const door of doors.values()) await door.close();
      if (tokenFile !== null) rmSync(tokenFile, { force: true });
    },
  };
}

function passesOf({ token, samplerToken, envServerToken }: RunConfig["join"]): { passes: Pass[]; made: string | null } {
  const known: [string | null, Pass["roles"]][] = [
    [token, GUEST_ROLES],
    [samplerToken, ["sampler"]],
    [envServerToken, ["env-server"]],
  ];
  const passes = known.flatMap(([secret, roles]) => (secret === null ? [] : [{ token: secret, roles }]));
  if (passes.length > 0) return { passes, made: null };
  const made = randomBytes(24).toString("base64url");
  return { passes: [{ token: made, roles: GUEST_ROLES }], made };
}

function tlsOf({ certFile, keyFile, clientCaFile }: RunConfig["join"]): ServerTls {
  return {
    cert: readPem(certFile ?? "", "join.certFile"),
    key: readPem(keyFile ?? "", "join.keyFile"),
    clientCa: clientCaFile === null ? null : readPem(clientCaFile, "join.clientCaFile"),
  };
}
