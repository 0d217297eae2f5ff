/**
 * Opens a run's gate, with its tokens, its certificates and the listeners for guests.
 *
 * - If the config has no join token (allowed on loopback only), `openGate` makes a token, and writes it to a file in the run's folder. Only
 *   the file's owner can read the file. `close` removes the file.
 */
import { randomBytes } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { realClock, settlesIn } from "../clock.ts";
import { type RunConfig, withoutSecrets } from "../config/config.ts";
import { heartbeatMs } from "../config/machine.ts";
import type { JoinSettings } from "../process/join.ts";
import { type ActorView, type Messages, PROTOCOL_VERSION, type Tell } from "../protocol.ts";
import { Guests, type GuestsOptions } from "../supervisor/guests.ts";
import { actorsOf } from "../supervisor/roster.ts";
import { freeAddressLike, isBroker, isEncrypted } from "../transport/address.ts";
import { welcoming } from "../transport/handshake.ts";
import { serverTls } from "../transport/tls.ts";
import { type Listener, type Problem, TRANSPORT_LIMITS, type Transport } from "../transport/transport.ts";
import { Gate, GUEST_ROLES, type JoinToken } from "./gate.ts";

export interface OpenGateOptions extends Pick<GuestsOptions, "firstMessages" | "envServersChanged" | "event"> {
  readonly run: string;
  readonly folder: string;
  readonly config: RunConfig;
  /** The supervisor's transport, with the token of the actors. */
  readonly transport: Transport;
  readonly actorsToken: string;
  /** The address of the actor of this name; null if this machine has no such actor, or if the actor has no address now. */
  readonly find: (name: string) => string | null;
  readonly report: (problem: Problem) => void;
}

export type OpenGate = Awaited<ReturnType<typeof openGate>>;

const TOKEN_FILE = "join.token";

/** When the run ends, `close` waits at most this long for guests to leave. */
const LEAVE_MS = 2000;

/** @throws {Error} in one line, if the gate cannot listen at `listen`, a certificate cannot be read or the token cannot be written */
export async function openGate(listen: string, options: OpenGateOptions) {
  const { run, folder, config, transport, actorsToken, firstMessages, envServersChanged, event, report } = options;
  const { heartbeatDeadlineMs, progressDeadlineMs, logLevel } = config.supervisor;
  const beatMs = heartbeatMs(config.supervisor);
  const tls = isEncrypted(listen) ? serverTls(config.join) : null;
  const { joinTokens, newToken } = joinTokensOf(config.join);
  const onBroker = isBroker(config.transport.listen);
  const guests = new Guests({
    clock: realClock,
    heartbeatMs: beatMs,
    heartbeatDeadlineMs,
    progressDeadlineMs,
    firstMessages,
    envServersChanged,
    event,
    cut: (name, reason) => gate.cut(name, reason),
  });
  const tokenFile = newToken === null ? null : joinPath(folder, TOKEN_FILE);
  // One listener for each set of roles, so that a guest with a sampler's token cannot say hello as an env server.
  const listeners = new Map<string, Listener>();
  let gate: Gate;
  try {
    for (const roles of [GUEST_ROLES, ...GUEST_ROLES.map((role) => [role])]) {
      listeners.set(
        roles.join(),
        await transport.listen(freeAddressLike(config.transport.listen), welcoming(run, guests.admitting(roles))),
      );
    }
    if (tokenFile !== null) writeToken(tokenFile, `${newToken}\n`);
    gate = new Gate({
      listen,
      tls,
      joinTokens,
      actorsToken,
      ...TRANSPORT_LIMITS,
      report,
      clock: realClock,
      connectionsMax: config.join.connectionsMax,
      strangersMax: config.join.strangersMax,
      strangerMs: config.join.strangerMs,
      find: (name, roles) =>
        name === "supervisor" ? (listeners.get(roles.join())?.address ?? null) : options.find(name),
      isActor: (name) => name === "supervisor" || actorsOf(config).some((actor) => actor.name === name),
      joinSettings: (role): JoinSettings => ({
        protocol: PROTOCOL_VERSION,
        run,
        heartbeatMs: beatMs,
        logLevel,
        ...TRANSPORT_LIMITS,
        config: withoutSecrets(config),
        broker: onBroker ? { supervisor: listeners.get(role)!.address, token: actorsToken } : null,
      }),
    });
  } catch (error) {
    // An open listener or a timer would keep this process alive.
    void guests.stop("the gate did not open");
    for (const listener of listeners.values()) await listener.close();
    if (tokenFile !== null) rmSync(tokenFile, { force: true });
    throw error;
  }
  return {
    /** The address that a guest gives to `--join`. */
    address: gate.address,
    /** The file with the token that `openGate` made; null if the config has a token. */
    tokenFile,
    /** The env servers among the guests, with the addresses at which actors of this machine reach them. */
    get envServers(): Messages["roster"]["envServers"] {
      return guests.envServers.map(({ actor, url }) => ({ actor, url: onBroker ? url : gate.urlOf(actor) }));
    },
    get views(): readonly ActorView[] {
      return guests.views;
    },
    tell: (message: Tell) => guests.tell(message),
    async close(reason: string): Promise<void> {
      await settlesIn(realClock, LEAVE_MS, guests.stop(reason));
      await gate.close();
      for (const listener of listeners.values()) await listener.close();
      if (tokenFile !== null) rmSync(tokenFile, { force: true });
    },
  };
}

/** Deletes an old file first, because only a new file gets the mode. `wx` refuses an existing file or link, so the write follows no link. */
function writeToken(file: string, text: string): void {
  rmSync(file, { force: true });
  writeFileSync(file, text, { flag: "wx", mode: 0o600 });
}

function joinTokensOf({ token, samplerToken, envServerToken }: RunConfig["join"]): {
  joinTokens: JoinToken[];
  newToken: string | null;
} {
  const given: [string | null, JoinToken["roles"]][] = [
    [token, GUEST_ROLES],
    [samplerToken, ["sampler"]],
    [envServerToken, ["env-server"]],
  ];
  const joinTokens = given.flatMap(([secret, roles]) => (secret === null ? [] : [{ token: secret, roles }]));
  if (joinTokens.length > 0) return { joinTokens, newToken: null };
  const newToken = randomBytes(24).toString("base64url");
  return { joinTokens: [{ token: newToken, roles: GUEST_ROLES }], newToken };
}
