/** A local JSON server that records its requests. */
import { expect } from "bun:test";
import type { OutsideGame } from "../../../envs/env.ts";

export interface Asked {
  readonly path: string;
  readonly headers: Headers;
  /** null for GET. */
  readonly body: unknown;
}

export interface JsonService extends AsyncDisposable {
  readonly url: string;
  readonly asked: Asked[];
}

/** @param answer  a Response, or what is sent as JSON with status 200. */
export function jsonService(answer: (asked: Asked) => unknown): JsonService {
  const asked: Asked[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const body = request.method === "POST" ? await request.json() : null;
      const one = { path: new URL(request.url).pathname, headers: request.headers, body };
      asked.push(one);
      const given = await answer(one);
      return given instanceof Response ? given : Response.json(given);
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    asked,
    async [Symbol.asyncDispose]() {
      await server.stop(true);
    },
  };
}

/** A remote env that any action solves, and that lists no actions. */
export const answersWithoutActions = ({ path }: Asked): object =>
  ({
    "/health": { protocol: 1, envs: ["any"] },
    "/open": { observation: "Say a word." },
    "/step": { observation: "Thanks.", reward: 1, done: true, success: true },
    "/close": {},
  })[path]!;

/** Expects that a game which waits for a server's answer stops waiting when the game is closed. */
export async function expectNoWaitOnceClosed(open: (url: string) => OutsideGame, action: string): Promise<void> {
  const asked = Promise.withResolvers<void>();
  await using server = jsonService(() => {
    asked.resolve();
    return new Promise(() => {});
  });
  const game = open(server.url);
  await game.start();
  const answer = game.act(action).catch(String);
  await asked.promise;
  await game.close();
  expect(await answer).toBe("Error: the episode was closed");
}
