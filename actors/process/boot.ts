/**
 * Starts a child of the supervisor. A process reads its settings from standard input, writes its log to standard error, and ends when its
 * parent ends. A Bun worker gets its settings from the main thread, sends its log to that thread, and ends when that thread ends.
 *
 * - When the supervisor ends, standard input ends and this process exits. A stopped or busy process does not notice the end of its input, so
 *   on Linux the kernel also kills this process.
 * - A child process ignores SIGINT and SIGHUP. Ctrl-C or a closed terminal sends these signals to every process at once, but the supervisor
 *   stops the actors in order. SIGTERM may also go to all processes (timeout, systemd). So after SIGTERM an actor that is connected to the
 *   supervisor waits `STOP_WAIT_MS` for the supervisor's `stop`.
 */
import { dlopen } from "bun:ffi";
import { writeSync } from "node:fs";
import { z } from "zod";
import type { ActorKind, Running } from "../actor.ts";
import { realClock } from "../clock.ts";
import { RunConfig, UNCOMPILED } from "../config/config.ts";
import { describeError, schemaFaults } from "../errors.ts";
import { importModules } from "../play/env-modules.ts";
import type { Role } from "../protocol.ts";
import { type LifeContext, runActorLife } from "./life.ts";
import { linesOf } from "./lines.ts";
import { ActorSettings } from "./settings.ts";

interface BootOptions<S> {
  readonly role: Role;
  readonly settingsSchema: z.ZodType<S>;
  readonly start: (settings: S, context: LifeContext) => Running | Promise<Running>;
}

/** A message from a worker to the main thread: a log line, or the exit code of a worker that exits by itself. A terminated worker sends none. */
export type ChildMessage =
  | { readonly kind: "line"; readonly line: string }
  | { readonly kind: "exit"; readonly code: number };

const settingsSchema = z.strictObject({ config: RunConfig, folder: z.string() });
export type RunActorSettings = z.infer<typeof settingsSchema>;

export function runActor(kind: ActorKind): Promise<void> {
  return boot({
    role: kind.role,
    settingsSchema,
    async start({ config, folder }, context) {
      await importModules(config);
      const host = Bun.isMainThread ? "process" : "worker";
      return kind.start(config, { ...context, folder, host, guest: null });
    },
  });
}

declare const self: Worker;

const sendToMain = (message: ChildMessage): void => self.postMessage(message);

/** After SIGTERM the actor waits this long for the supervisor's `stop`. */
const STOP_WAIT_MS = 3000;

export async function boot<S>({ role, settingsSchema, start }: BootOptions<S>): Promise<void> {
  if (!Bun.isMainThread) process.on("exit", (code) => sendToMain({ kind: "exit", code }));
  const { actorSettings, settings } = await readSettings(role, settingsSchema);
  if (Bun.isMainThread) dieWithParent();
  const life = runActorLife({
    actorSettings,
    role,
    write: writeLine,
    start: (context) => start(settings, context),
  });
  if (Bun.isMainThread) {
    for (const signal of ["SIGINT", "SIGHUP"] as const) process.on(signal, () => {});
    process.on("SIGTERM", () => {
      if (!life.isSupervised) void life.leave("SIGTERM");
      else realClock.after(STOP_WAIT_MS, () => void life.leave("SIGTERM"));
    });
  }
  await life.started;
}

/** Makes the kernel kill this process when its parent ends, even if this process is stopped or in an endless loop. */
function dieWithParent(): void {
  if (process.platform !== "linux") return;
  // linux/prctl.h
  const PR_SET_PDEATHSIG = 1;
  const SIGKILL = 9;
  try {
    const libc = dlopen("libc.so.6", { prctl: { args: ["i32", "u64", "u64", "u64", "u64"], returns: "i32" } });
    libc.symbols.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  } catch {
    // The C library is not glibc. Then this process ends only with its standard input.
  }
}

/** The settings that the main thread sends. The worker must call this before its first `await`; otherwise it may miss the message. */
const receivedSettings = (): Promise<string> =>
  new Promise((resolve) => self.addEventListener("message", ({ data }: MessageEvent<string>) => resolve(data)));

/** @returns the first line of standard input. When the input ends after this line, the supervisor has ended, so this process exits */
function firstLine(): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  void (async () => {
    let isRead = false;
    for await (const line of linesOf(Bun.stdin.stream())) {
      isRead = true;
      resolve(line);
    }
    if (isRead) process.exit(1);
    reject(new Error("standard input ended before a line of settings; only the supervisor starts this program"));
  })();
  return promise;
}

async function readSettings<S>(
  role: Role,
  schema: z.ZodType<S>,
): Promise<{ actorSettings: ActorSettings; settings: S }> {
  try {
    const line = await (Bun.isMainThread ? firstLine() : receivedSettings());
    const actorSettings = ActorSettings.parse(JSON.parse(line), UNCOMPILED);
    return { actorSettings, settings: schema.parse(actorSettings.settings, UNCOMPILED) };
  } catch (error) {
    const why = error instanceof z.ZodError ? schemaFaults(error, "settings") : describeError(error);
    writeLine(`${JSON.stringify({ level: "error", actor: role, kind: "boot", text: `cannot start: ${why}` })}\n`);
    process.exit(1);
  }
}

function writeLine(line: string): void {
  if (!Bun.isMainThread) {
    sendToMain({ kind: "line", line });
    return;
  }
  try {
    writeSync(2, line);
  } catch {
    // The reader of the log is gone or stuck. The loss of a line is better than the loss of the actor.
  }
}
