/**
 * Signals that ask a command to stop: Ctrl-C (SIGINT), SIGTERM, and a closed terminal (SIGHUP).
 *
 * - One request often arrives as several signals: the kernel signals the whole process group, and `bun run` also passes on the signal that it
 *   gets. A signal counts as a second request only if it comes more than `REPEAT_AFTER_MS` after the first.
 * - SIGHUP never counts as a second request. A process started with `nohup` keeps ignoring SIGHUP.
 */
import { readFileSync } from "node:fs";

export type StopSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

const REPEAT_AFTER_MS = 1000;
/** Bit of SIGHUP (signal 1) in the masks of /proc/self/status. */
const HANGUP_BIT = 1n;

/** Calls `stop` at the first request. A second request ends the process at once with exit code 1. */
export function onStopSignal(stop: (signal: StopSignal) => void): void {
  let firstAtMs: number | null = null;
  const request = (signal: StopSignal) => {
    if (firstAtMs === null) {
      firstAtMs = performance.now();
      stop(signal);
    } else if (signal !== "SIGHUP" && performance.now() - firstAtMs > REPEAT_AFTER_MS) {
      process.exit(1);
    }
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, request);
  if (!ignoresHangup()) process.on("SIGHUP", request);
}

/** Resolves at the first request to stop. */
export function stopSignal(): Promise<StopSignal> {
  return new Promise(onStopSignal);
}

/** True if this process ignores SIGHUP since its start, as a process under `nohup` does. */
function ignoresHangup(): boolean {
  try {
    const [, mask] = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8")) ?? [];
    return (BigInt(`0x${mask}`) & HANGUP_BIT) !== 0n;
  } catch {
    // The system is not Linux. `nohup` redirects standard error. So if standard error is a terminal, the command runs without nohup.
    return process.stderr.isTTY !== true;
  }
}
