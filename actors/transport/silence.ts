/**
 * Distinguishes a dead connection from an idle one. Both ends send pings at a fixed rate. So silence means a cut cable, a stopped process or
 * a blocked event loop.
 */
import type { Clock } from "../clock.ts";

export interface SilenceWatch {
  /** Call it whenever something arrives. */
  heard(): void;
  stop(): void;
}

/** A ping is an empty frame; no message is empty. */
export const PING = new Uint8Array(0);

/**
 * @param ping  sends a ping; called four times per `silenceMsMax`
 * @param silent  called once, when nothing has arrived for `silenceMsMax`
 */
export function watchSilence(
  clock: Clock,
  silenceMsMax: number,
  ping: () => void,
  silent: (reason: string) => void,
): SilenceWatch {
  const roundMs = silenceMsMax / 4;
  let heardAtMs = clock.now();
  let roundAtMs = heardAtMs;
  let cancel = clock.after(roundMs, round);

  function round(): void {
    const now = clock.now();
    // A late round means that this process was suspended. Frames that arrived during the suspension are still unread.
    if (now - roundAtMs > 2 * roundMs) heardAtMs = now;
    roundAtMs = now;
    if (now - heardAtMs > silenceMsMax) {
      silent(`nothing was heard for ${Math.round(now - heardAtMs)} ms (limit ${silenceMsMax} ms)`);
      return;
    }
    ping();
    cancel = clock.after(roundMs, round);
  }

  return {
    heard() {
      heardAtMs = clock.now();
    },
    stop: () => cancel(),
  };
}
