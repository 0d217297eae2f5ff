/**
 * Methods of an object that lives in another thread of this process, so that a long computation never blocks an actor's loop.
 * Not for messages between actors: those are in protocol.ts. Calls are answered in any order, each exactly once.
 */
import { type Clock, realClock } from "../clock.ts";

/** An object whose methods may be called from elsewhere: arguments and results are copied, shared memory is shared. */
export type Methods = Readonly<Record<string, (...args: never[]) => unknown>>;

/** The same object as seen from the other thread. */
export type Remote<M extends Methods> = {
  readonly [K in keyof M]: (...args: Parameters<M[K]>) => Promise<Awaited<ReturnType<M[K]>>>;
};

interface Call {
  readonly id: number;
  readonly method: string;
  readonly args: readonly never[];
}
type Return =
  | { readonly id: number; readonly result: unknown }
  | {
      readonly id: number;
      readonly error: { readonly name: string; readonly message: string; readonly stack: string };
    };

declare const self: Worker;

/** In the worker: answer calls. A method that throws fails that call only. */
export function serveMethods(methods: Methods): void {
  self.onmessage = ({ data }: MessageEvent<Call>) => void answer(methods, data);
}

async function answer(methods: Methods, { id, method, args }: Call): Promise<void> {
  let answer: Return;
  try {
    if (!Object.hasOwn(methods, method)) throw new TypeError(`this thread has no method ${method}`);
    answer = { id, result: await methods[method]!(...args) };
  } catch (error) {
    const { name, message, stack = "" } = error instanceof Error ? error : new Error(String(error));
    answer = { id, error: { name, message, stack } };
  }
  self.postMessage(answer);
}

export interface Thread<M extends Methods> {
  readonly methods: Remote<M>;
  /** How long calls have been open without any answer, in milliseconds; 0 if none is. */
  workingMs(): number;
  stop(): void;
}

/** Start `entry` as a worker that serves `M`. @param failed  the thread died; every open call is rejected too */
export function startThread<M extends Methods>(
  entry: URL,
  failed: (error: Error) => void,
  clock: Clock = realClock,
): Thread<M> {
  const worker = new Worker(entry);
  const open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let nextId = 0;
  /** When the last answer came, or the first of the open calls was made. */
  let sinceMs = 0;
  const fail = (error: Error) => {
    for (const { reject } of open.values()) reject(error);
    open.clear();
    failed(error);
  };
  worker.onmessage = ({ data }: MessageEvent<Return>) => {
    const call = open.get(data.id);
    open.delete(data.id);
    sinceMs = clock.now();
    if ("result" in data) return call?.resolve(data.result);
    const error = new Error(data.error.message);
    call?.reject(Object.assign(error, { name: data.error.name, stack: data.error.stack }));
  };
  worker.onerror = ({ message }) => fail(uncaught(message));
  worker.addEventListener("close", (event) => {
    const { code } = event as unknown as { code: number };
    if (code !== 0) fail(new Error(`a compute thread ended with code ${code}`));
  });
  const methods = new Proxy({} as Remote<M>, {
    get: (_, method: string) => {
      return (...args: never[]) =>
        new Promise((resolve, reject) => {
          const id = nextId++;
          if (open.size === 0) sinceMs = clock.now();
          open.set(id, { resolve, reject });
          worker.postMessage({ id, method, args } satisfies Call);
        });
    },
  });
  return {
    methods,
    workingMs: () => (open.size === 0 ? 0 : clock.now() - sinceMs),
    stop() {
      worker.terminate();
      for (const { reject } of open.values()) reject(new Error("the compute thread was stopped"));
      open.clear();
    },
  };
}

/** What no method of a thread caught. Bun tells it as it prints it: the code around it, its name and words, its calls. */
function uncaught(printed: string): Error {
  const lines = printed.split("\n").filter((line) => !/^\s*(\d+ \||\^)/.test(line));
  const isCall = (line: string) => /^\s+at /.test(line);
  const words = lines.filter((line) => !isCall(line)).join("\n");
  const error = new Error(`a compute thread failed: ${words.trim()}`);
  error.stack = lines.filter(isCall).join("\n");
  return error;
}

/** The same object with some of its methods replaced. */
export function withMethods<M extends Methods>(remote: Remote<M>, replaced: Partial<Remote<M>>): Remote<M> {
  return new Proxy(remote, { get: (from, name: string) => replaced[name] ?? from[name] });
}

/** The same methods without a thread: for a run in a single process. Each call lets the thread's other work go first. */
export function inThisThread<M extends Methods>(methods: M): Thread<M> {
  const asynchronous = Object.entries(methods).map(([name, method]) => [
    name,
    async (...args: never[]) => {
      await new Promise((next) => setImmediate(next));
      return method(...args);
    },
  ]);
  return { methods: Object.fromEntries(asynchronous) as Remote<M>, workingMs: () => 0, stop() {} };
}
