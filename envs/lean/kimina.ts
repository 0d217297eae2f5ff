/**
 * Checks Lean 4 code with a Kimina Lean server. Knows no theorem and no reward.
 *
 * `POST /api/check {snippets, timeout, debug, reuse, infotree}` → `{results: [{id, error?, response?}]}`.
 * Source: project-numina/kimina-lean-server, client/kimina_client; RAGEN-2 ragen/env/lean/env.py.
 */
import { z } from "zod";
import type { JsonServer } from "../outside/json-server.ts";

const Position = z.object({ line: z.int(), column: z.int().nullish() });

const Message = z.object({
  severity: z.string(),
  pos: Position.nullish(),
  endPos: Position.nullish(),
  data: z.string(),
});
export type LeanMessage = z.infer<typeof Message>;

/** Lean's messages, or one message of Lean's REPL. */
const Response = z.union([
  z.object({ message: z.string() }),
  z.object({ messages: z.array(Message).nullish(), sorries: z.array(z.unknown()).nullish() }),
]);

const CheckAnswer = z.object({
  results: z.array(z.object({ error: z.string().nullish(), response: Response.nullish() })).length(1),
});

export interface Verdict {
  readonly messages: readonly LeanMessage[];
  /** True if Lean reports no error except unsolved goals, and no `sorry`. */
  readonly accepted: boolean;
  /** True if Lean reports no error and no `sorry`: the theorem is proven. */
  readonly proven: boolean;
  /** True if Lean exceeded its time limit. */
  readonly timedOut: boolean;
}

/**
 * @param timeoutSeconds  Lean's time limit; a timeout is a verdict, not an error.
 * @throws {Error} if the server or its Lean fails for a reason outside the code.
 */
export async function checkLean(
  server: JsonServer,
  code: string,
  timeoutSeconds: number,
  signal: AbortSignal,
): Promise<Verdict> {
  const snippets = [{ id: `proof-${crypto.randomUUID()}`, code }];
  const body = { snippets, timeout: timeoutSeconds, debug: false, reuse: true, infotree: "tactics" };
  const { results } = await server.ask("/api/check", body, CheckAnswer, signal);
  const { error, response } = results[0]!;
  if (typeof error === "string") {
    if (!/timed out/i.test(error)) throw new Error(`the Lean server could not check the proof: ${error}`);
    return { ...rejected(error), timedOut: true };
  }
  if (response === null || response === undefined) throw new Error("the Lean server sent a result without a response");
  if ("message" in response) return rejected(response.message);
  const messages = response.messages ?? [];
  const errors = messages.filter(({ severity }) => severity.toLowerCase() === "error");
  const assumed = (response.sorries ?? []).length > 0 || messages.some(isAssumed);
  return {
    messages,
    accepted: !assumed && errors.every(isUnsolved),
    proven: !assumed && errors.length === 0,
    timedOut: false,
  };
}

/** True for "unsolved goals", which every unfinished proof has. */
export const isUnsolved = ({ data }: LeanMessage): boolean => /unsolved goals/i.test(data);

/**
 * True for Lean's warning of a declaration with a `sorry`. The server lists no `sorries` for `admit` and other tactics that insert a
 * `sorry`.
 */
const isAssumed = ({ data }: LeanMessage): boolean => /declaration uses ['`]sorry['`]/i.test(data);

/** The verdict that rejects code which Lean did not check. */
export const rejected = (reason: string): Verdict => ({
  messages: [{ severity: "error", data: reason }],
  accepted: false,
  proven: false,
  timedOut: false,
});
