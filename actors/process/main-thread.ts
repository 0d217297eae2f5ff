/** The main thread, as an actor in a Bun worker sees it: the source of its settings and the target of its log lines. */
import type { Port } from "../transport/worker.ts";

/** From the main thread: the settings, as one line of JSON. The first message that a worker gets. */
export interface SettingsMessage {
  readonly kind: "settings";
  readonly line: string;
}

/** To the main thread: a log line, or the exit code of a worker that exits by itself. A termination gives a `close` event only. */
export type ChildMessage =
  | { readonly kind: "line"; readonly line: string }
  | { readonly kind: "exit"; readonly code: number };

/** In a worker, the global scope is the port to the main thread. */
export const mainThread = globalThis as unknown as Port;

export const sendToMain = (message: ChildMessage): void => mainThread.postMessage(message, []);

/** Call it before the first `await` of the worker, so that the message is not missed. */
export function receivedSettings(): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  mainThread.addEventListener("message", ({ data }) => {
    const message = data as SettingsMessage;
    if (message.kind === "settings") resolve(message.line);
  });
  return promise;
}
