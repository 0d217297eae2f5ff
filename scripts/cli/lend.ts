/** What `bun run sampler` and `bun run env-server` share: where to join, who we are, and how to leave. */
import { readFileSync } from "node:fs";
import type { ActorKind } from "../../actors/actor.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { describeError } from "../../actors/errors.ts";
import { type Joined, join } from "../../actors/process/join.ts";
import { parseAddress } from "../../actors/transport/socket-wire.ts";
import { type ClientTls, readPem } from "../../actors/transport/tls.ts";
import { type Flag, UsageError } from "./options.ts";
import { say, warn } from "./say.ts";
import { onStopSignal } from "./stop-signals.ts";

export const lendFlags = {
  join: { type: "text", value: "ADDRESS", text: "Where the run lets others in: ws://HOST:PORT, or wss:// for TLS" },
  "token-file": {
    type: "text",
    value: "FILE",
    text: "File that holds the token; else the environment's BUNRAKU_TOKEN",
  },
  token: {
    type: "text",
    value: "TOKEN",
    text: "The token itself; anyone on this machine can read it in the process list",
  },
  ca: { type: "text", value: "FILE", text: "Whom to trust (PEM), if not those that this machine trusts" },
  cert: { type: "text", value: "FILE", text: "Our certificate (PEM), if the run asks for one" },
  key: { type: "text", value: "FILE", text: "Its private key" },
  patience: {
    type: "number",
    value: "SECONDS",
    text: "Give up when the run is out of reach for so long; 60 if left out",
  },
  quiet: { type: "switch", text: "Only warnings" },
  json: { type: "switch", text: "End standard output with one JSON object" },
} as const satisfies Record<string, Flag>;

interface LendFlags {
  readonly join?: string;
  readonly "token-file"?: string;
  readonly token?: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly patience?: number;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

const PATIENCE_SECONDS = 60;

/** Lends an actor of this kind until the run is over or somebody stops us. */
export async function lend(
  kind: ActorKind,
  flags: LendFlags,
  adapt: (config: RunConfig) => RunConfig,
): Promise<number> {
  const { join: address, patience = PATIENCE_SECONDS, quiet = false, json = false } = flags;
  if (address === undefined) throw new UsageError("say where: --join ws://HOST:PORT, or wss:// for TLS");
  if (!(patience >= 0)) throw new UsageError(`--patience takes seconds, 0 or more, got ${patience}`);
  const token = tokenOf(flags);
  const tls = tlsOf(flags);
  checkAddress(address, tls);
  let joined: Joined | null = null;
  onStopSignal((signal) => {
    // Before it has joined there is nothing to leave.
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
      // run.ts keeps this flag to itself; a guest has no log to put it in.
      if (stack !== undefined && process.argv.includes("--verbose")) say(stack);
    },
  });
  const { run, actor } = joined;
  if (json) process.on("exit", (code) => console.log(JSON.stringify({ run, actor, code })));
  return new Promise(() => {});
}

function checkAddress(address: string, tls: ClientTls): void {
  try {
    const { protocol } = parseAddress(address);
    if (protocol === "ws:" && Object.keys(tls).length > 0) {
      throw new Error(`certificates are not used by ${address}; write wss://`);
    }
  } catch (error) {
    throw new UsageError(`--join: ${describeError(error).replace(/^Error: /, "")}`);
  }
}

function tokenOf({ token, "token-file": file }: LendFlags): string {
  if (token !== undefined && file !== undefined)
    throw new UsageError("--token and --token-file both say the token; keep one");
  if (token !== undefined) {
    warn("--token can be read in the process list; use --token-file FILE or BUNRAKU_TOKEN");
  }
  const given = token ?? (file === undefined ? process.env["BUNRAKU_TOKEN"] : read(file));
  if (given === undefined || given.trim() === "") {
    throw new UsageError(
      "a run lets nobody in without its token: --token-file FILE, or BUNRAKU_TOKEN in the environment",
    );
  }
  return given.trim();
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`cannot read --token-file: ${describeError(error).replace(/^Error: /, "")}`);
  }
}

function tlsOf({ ca, cert, key }: LendFlags): ClientTls {
  if ((cert === undefined) !== (key === undefined)) throw new UsageError("--cert and --key belong together");
  const files = Object.entries({ ca, cert, key }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return Object.fromEntries(files.map(([name, file]) => [name, readPem(file, `--${name}`)]));
}
