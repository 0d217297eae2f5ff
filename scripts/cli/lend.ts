/** What `bun run sampler` and `bun run env-server` share: the flags, how the actor joins the run, and how it leaves. */
import type { ActorKind } from "../../actors/actor.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { messageOf } from "../../actors/errors.ts";
import { type Joined, join } from "../../actors/process/join.ts";
import { parseAddress } from "../../actors/transport/socket-wire.ts";
import { type ClientTls, readPem } from "../../actors/transport/tls.ts";
import { type Flag, type FlagValues, flag, UsageError } from "./options.ts";
import { say, warn } from "./print.ts";
import { onStopSignal } from "./stop-signals.ts";
import { readToken, sendable } from "./token-file.ts";

export const lendFlags = {
  join: flag.text("ADDRESS", "Address of the run's gate: ws://HOST:PORT, or wss:// for TLS"),
  "token-file": flag.text(
    "FILE",
    "File with the run's token; without it, the environment variable BUNRAKU_TOKEN has the token",
  ),
  token: flag.text("TOKEN", "The token itself; other users of this machine can see it"),
  ca: flag.text("FILE", "CA certificate (PEM) instead of the system's certificates"),
  cert: flag.text("FILE", "Client certificate (PEM), if the run asks for one"),
  key: flag.text("FILE", "Private key (PEM) of the client certificate"),
  patience: flag.number("SECONDS", "Give up after this many seconds without a connection to the run (default: 60)"),
  quiet: flag.switch("Print warnings only"),
  json: flag.switch("End standard output with one JSON object"),
} as const satisfies Record<string, Flag>;

type LendFlags = FlagValues<typeof lendFlags>;

const PATIENCE_SECONDS = 60;

/**
 * Lends an actor of this kind until the run is over or a signal stops this command. The function then ends the process.
 *
 * @param adapt  changes the run's config for this machine.
 */
export async function lend(
  kind: ActorKind,
  flags: LendFlags,
  adapt: (config: RunConfig) => RunConfig,
): Promise<number> {
  const { join: address, patience = PATIENCE_SECONDS, quiet = false, json = false } = flags;
  if (address === undefined) throw new UsageError("--join is missing: write --join ws://HOST:PORT, or wss:// for TLS");
  if (patience < 0) throw new UsageError(`--patience takes seconds, 0 or more, got ${patience}`);
  const token = tokenOf(flags);
  const tls = tlsOf(flags);
  checkAddress(address, tls);
  let joined: Joined | null = null;
  const summary = (code: number) => ({ run: joined?.run ?? null, actor: joined?.actor ?? null, code });
  if (json) process.on("exit", (code) => console.log(JSON.stringify(summary(code))));
  onStopSignal((signal) => {
    // An actor that has not joined yet cannot leave.
    if (joined === null) process.exit(0);
    void joined.leave(signal);
  });
  joined = await join(kind, {
    address,
    token,
    tls,
    adapt,
    patienceMs: 1000 * patience,
    say: (level, text, stack) => {
      if (level !== "info") say(`${level}: ${text}`);
      else if (!quiet) say(text);
      // A lent actor has no log file, so the stack goes to the terminal. `flags` lacks --verbose, because run-command.ts removes this flag.
      if (stack !== undefined && process.argv.includes("--verbose")) say(stack);
    },
  });
  return new Promise(() => {});
}

function checkAddress(address: string, tls: ClientTls): void {
  try {
    const { protocol } = parseAddress(address);
    if (protocol === "ws:" && Object.keys(tls).length > 0) {
      throw new Error(`${address} does not use certificates; write wss://`);
    }
  } catch (error) {
    throw new UsageError(`--join: ${messageOf(error)}`);
  }
}

function tokenOf({ token, "token-file": file }: LendFlags): string {
  if (token !== undefined && file !== undefined) throw new UsageError("give --token or --token-file, not both");
  if (token !== undefined) {
    warn("other users can read --token in the process list; use --token-file FILE or BUNRAKU_TOKEN");
  }
  const direct = token === undefined ? "BUNRAKU_TOKEN" : "--token";
  const given = file === undefined ? sendable(token ?? process.env["BUNRAKU_TOKEN"] ?? "", direct) : readToken(file);
  if (given !== "") return given;
  throw new UsageError("the run's token is missing: give --token-file FILE, or set BUNRAKU_TOKEN in the environment");
}

function tlsOf({ ca, cert, key }: LendFlags): ClientTls {
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError("--cert and --key need each other; give both, or neither");
  const files = Object.entries({ ca, cert, key }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return Object.fromEntries(files.map(([name, file]) => [name, readPem(file, `--${name}`)]));
}
