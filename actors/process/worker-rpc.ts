/**
 * Calls methods of an object in a worker thread, so that a long computation never blocks an actor's event loop. Each call settles exactly
 * once, and calls may settle in any order. Messages between actors do not use this file: protocol.ts has them.
 */
import { type Clock, nextTurn, realClock } from "../clock.ts";

/** An object whose methods another thread may call. Each call copies its arguments and its result; only shared memory is not copied. */
export type Methods = Readonly<Record<string, (...args: never[]) => unknown>>;

/** The methods for the calling thread: each returns a promise. */
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
  | { readonly id: number; readonly error: Readonly<Required<Pick<Error, "name" | "message" | "stack">>> };

declare const self: Worker;

/** Answers the calls of the thread that started this worker. A worker calls this function once. If a method throws, only its call fails. */
export function serveMethods(methods: Methods): void {
  const send = together<Return>((answers) => self.postMessage(answers));
  self.onmessage = ({ data }: MessageEvent<readonly Call[]>) => {
    for (const call of data) void answer(methods, call).then(send);
  };
}

async function answer(methods: Methods, { id, method, args }: Call): Promise<Return> {
  try {
    if (!Object.hasOwn(methods, method)) throw new TypeError(`this thread has no method ${method}`);
    return { id, result: await methods[method]!(...args) };
  } catch (error) {
    const { name, message, stack = "" } = error instanceof Error ? error : new Error(String(error));
    return { id, error: { name, message, stack } };
  }
}

/** Sends the items of one turn of the event loop in one message, because one message for each item would take much longer. */
function together<T>(send: (items: readonly T[]) => void): (item: T) => void {
  let waiting: T[] = [];
  return (item) => {
    if (waiting.push(item) > 1) return;
    queueMicrotask(() => {
      const items = waiting;
      waiting = [];
      send(items);
    });
  };
}

export interface Thread<M extends Methods> {
  readonly methods: Remote<M>;
  /** Milliseconds since the last answer, or since the call that ended the thread's idle time if this call came later. 0 if no call is open. */
  workingMs(): number;
  stop(): void;
}

/**
 * Starts `entry` as a worker that serves `M`.
 *
 * @param failed  called once if the thread ends by itself; every open call and every later call then rejects. Not called after `stop`
 */
export function startThread<M extends Methods>(
  entry: URL,
  failed: (error: Error) => void,
  clock: Clock = realClock,
): Thread<M> {
  const worker = new Worker(entry);
  const open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let nextId = 0;
  /** The time from which `workingMs` counts. Each answer sets this time. A call also sets it if no other call is open. */
  let sinceMs = 0;
  /** The error with which every call rejects after the thread's end; null while the thread lives. */
  let gone: Error | null = null;
  const end = (error: Error) => {
    gone ??= error;
    for (const { reject } of open.values()) reject(error);
    open.clear();
  };
  const fail = (error: Error) => {
    end(error);
    failed(error);
  };
  const send = together<Call>((calls) => worker.postMessage(calls));
  const settle = (answer: Return) => {
    const call = open.get(answer.id);
    open.delete(answer.id);
    if ("result" in answer) return call?.resolve(answer.result);
    const error = new Error(answer.error.message);
    call?.reject(Object.assign(error, { name: answer.error.name, stack: answer.error.stack }));
  };
  worker.onmessage = ({ data }: MessageEvent<readonly Return[]>) => {
    sinceMs = clock.now();
    data.forEach(settle);
  };
  worker.onerror = ({ message }) => fail(uncaught(message));
  worker.addEventListener("close", (event) => {
    const { code } = event as unknown as { code: number };
    // A thread that was stopped, or whose error `onerror` got, has rejected its calls already.
    if (gone === null) fail(new Error(`a compute thread ended with code ${code}`));
  });
  const methods = new Proxy({} as Remote<M>, {
    get: (_, method: string) => {
      return (...args: never[]) =>
        new Promise((resolve, reject) => {
          if (gone !== null) return reject(gone);
          const id = nextId++;
          if (open.size === 0) sinceMs = clock.now();
          open.set(id, { resolve, reject });
          send({ id, method, args });
        });
    },
  });
  return {
    methods,
    workingMs: () => (open.size === 0 ? 0 : clock.now() - sinceMs),
    stop() {
      worker.terminate();
      end(new Error("the compute thread was stopped"));
    },
  };
}

/** Makes an `Error` from a thread's uncaught error. Bun gives it as printed text: lines of code, then name and message, then the stack. */
function uncaught(printed: string): Error {
  const lines = printed.split("\n").filter((line) => !/^\s*(\d+ \||\^)/.test(line));
  const isCall = (line: string) => /^\s+at /.test(line);
  const message = lines.filter((line) => !isCall(line)).join("\n");
  const error = new Error(`a compute thread failed: ${message.trim()}`);
  error.stack = lines.filter(isCall).join("\n");
  return error;
}

/** Returns `run` with calls in order: a call begins after the earlier calls have settled. So a caller need not wait between calls. */
export function inOrder<A extends readonly unknown[], R>(run: (...args: A) => Promise<R>): (...args: A) => Promise<R> {
  let last: Promise<unknown> = Promise.resolve();
  return (...args) => {
    const result = last.then(() => run(...args));
    last = result.catch(() => {});
    return result;
  };
}

export function withMethods<M extends Methods>(remote: Remote<M>, replaced: Partial<Remote<M>>): Remote<M> {
  return new Proxy(remote, { get: (from, name: string) => replaced[name] ?? from[name] });
}

/** Serves the methods in this thread, for a run on one thread. Before each call, other work of the event loop has its turn. */
export function inThisThread<M extends Methods>(methods: M): Thread<M> {
  const asynchronous = Object.entries(methods).map(([name, method]) => [
    name,
    async (...args: never[]) => {
      await nextTurn();
      return method(...args);
    },
  ]);
  return { methods: Object.fromEntries(asynchronous) as Remote<M>, workingMs: () => 0, stop() {} };
}
