/**
 * Starts the children of a run on this thread, for tests and debuggers. The children exchange messages over sockets, as processes do.
 *
 * - If a child fails, the run ends. A replacement would share the thread with callbacks and memory that the failed child left.
 * - No timer of a child outlives the child.
 */
import { basename, dirname } from "node:path";
import type { ActorKind } from "../actor.ts";
import { type Clock, realClock } from "../clock.ts";
import { envServer } from "../env-server/start.ts";
import { learner } from "../learner/start.ts";
import { metricsSink } from "../metrics-sink/start.ts";
import type { RunActorSettings } from "../process/boot.ts";
import { runActorLife } from "../process/life.ts";
import { ActorSettings } from "../process/settings.ts";
import { sampler } from "../sampler/start.ts";
import type { ActorRole } from "./roster.ts";
import type { Exit, Spawner } from "./spawner.ts";

const KINDS: Readonly<Record<ActorRole, ActorKind>> = {
  "metrics-sink": metricsSink,
  "env-server": envServer,
  learner,
  sampler,
};

export const oneThreadSpawner: Spawner = {
  sharesThread: true,
  spawn(entry, settingsLine, output) {
    const { settings, ...actorSettings } = ActorSettings.parse(JSON.parse(settingsLine));
    const { config, folder } = settings as RunActorSettings;
    const kind = KINDS[basename(dirname(entry)) as ActorRole];
    const time = stoppableClock(realClock);
    const { promise: exited, resolve } = Promise.withResolvers<Exit>();
    const end = (exit: Exit) => {
      time.stop();
      resolve(exit);
    };
    const life = runActorLife(
      {
        actorSettings,
        role: kind.role,
        write: (line) => output(line.trimEnd()),
        start: (context) => kind.start(config, { ...context, folder, host: "one-thread", guest: null }),
      },
      {
        clock: time.clock,
        exit: (code) => end({ code, signal: null }),
        sharesThread: true,
      },
    );
    return {
      pid: process.pid,
      exited,
      kill: (signal) => (signal === "SIGTERM" ? void life.leave(signal) : end({ code: null, signal })),
    };
  },
};

/** A clock whose timers stop when the child ends, as the timers of a real process end with the process. */
function stoppableClock({ now, after }: Clock): { readonly clock: Clock; stop(): void } {
  const cancels = new Set<() => void>();
  let stopped = false;
  return {
    clock: {
      now,
      after(delayMs, run) {
        if (stopped) return () => {};
        const cancelTimer = after(delayMs, () => {
          cancels.delete(cancel);
          run();
        });
        const cancel = () => {
          cancels.delete(cancel);
          cancelTimer();
        };
        cancels.add(cancel);
        return cancel;
      },
    },
    stop() {
      stopped = true;
      for (const cancel of cancels) cancel();
    },
  };
}
