/**
 * Tells a dead connection from a quiet one. A cut cable, a stopped process and a wedged loop all look like silence, so
 * both ends send a byte of nothing when they have nothing else to say.
 */
import type { Clock } from "../clock.ts";

export interface SilenceWatch {
  /** Something arrived. */
  heard(): void;
  stop(): void;
}

export interface SilenceOptions {
  readonly clock: Clock;
  readonly silenceMsMax: number;
  /** Make the other end hear something. Called four times per `silenceMsMax`. */
  ping(): void;
  /** Called once, with how long nothing was heard. */
  silent(silentMs: number): void;
}

/** The ping: a frame of no bytes, which no message can be. */
export const PING = new Uint8Array(0);

export function watchSilence({ clock, silenceMsMax, ping, silent }: SilenceOptions): SilenceWatch {
  const roundMs = silenceMsMax / 4;
  let heardAt = clock.now();
  let roundAt = heardAt;
  let cancel = clock.after(roundMs, round);

  function round(): void {
    const now = clock.now();
    // A round that comes late means that this process slept: what arrived meanwhile is still unread.
    if (now - roundAt > 2 * roundMs) heardAt = now;
    roundAt = now;
    if (now - heardAt > silenceMsMax) {
      silent(now - heardAt);
      return;
    }
    ping();
    cancel = clock.after(roundMs, round);
  }

  return {
    heard() {
      heardAt = clock.now();
    },
    stop: () => cancel(),
  };
}
