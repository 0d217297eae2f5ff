/**
 * The protocol between a remote env and its server: JSON over HTTP, so that authors can write an env in any language.
 * docs/remote-envs.md explains the protocol. A test keeps docs/remote-envs.schema.json equal to these schemas.
 *
 *   GET  /health  -> Health
 *   POST /open    Open  -> Opened
 *   POST /step    Step  -> Stepped
 *   POST /close   Close -> Closed
 *
 * - An answer can be lost, so a client may repeat a request. The server then repeats its first answer. This holds for an `open` of an episode
 *   without steps, for a `step` with the number and action of the last step, and for any `close`.
 * - An error has a status other than 2xx and a Failed as its body.
 */
import { z } from "zod";

const REMOTE_PROTOCOL = 1;

const Episode = z.string().min(1).max(64).describe("Name of the episode, which the client chooses; unique");
/** Maximum number of actions in a list of actions. The client keeps one list in memory for every open episode. */
const ACTIONS_MAX = 4096;

const Observation = z.string().describe("What the agent sees now");
const Admissible = z
  .array(z.string())
  .max(ACTIONS_MAX)
  .nullable()
  .default(null)
  .describe("Actions that make sense now, for the random player; null if there is no list");
const Expert = z
  .string()
  .nullable()
  .default(null)
  .describe("The action of the server's expert, if the client asked for it; null if there is none");

export const Health = z.object({
  protocol: z.literal(REMOTE_PROTOCOL).describe("Version of this protocol"),
  envs: z.array(z.string()).min(1).describe("Names of the server's envs"),
});

export const Open = z.object({
  episode: Episode,
  env: z.string().nullable().describe("Name of the env; null selects the server's first env"),
  layoutSeed: z.uint32().describe("Seed of the board or question: equal seeds make equal openings"),
  dynamicsSeed: z
    .uint32()
    .describe("Seed of random events in the game: differs within a group, unless prompt.compat is ragen-*"),
  expert: z.boolean().describe("True if the client asks for the expert's actions"),
  options: z.record(z.string(), z.unknown()).describe("The env's own options"),
});

/** True if a reply can choose each action. */
const canBeChosen = (actions: readonly string[]): boolean =>
  new Set(actions.map((action) => action.toLowerCase())).size === actions.length &&
  actions.every((action) => action === action.trim() && !action.includes("||"));

export const Opened = z.object({
  observation: Observation,
  actions: z
    .array(z.string().min(1))
    .min(1)
    .max(ACTIONS_MAX)
    .refine(canBeChosen, "actions must differ by more than case, contain no || and neither start nor end with a space")
    .nullable()
    .default(null)
    .describe("All actions of the episode; upper and lower case do not matter; null if the env takes any text"),
  admissible: Admissible,
  expert: Expert,
});

export const Step = z.object({
  episode: Episode,
  step: z.int().nonnegative().describe("0 for the first action of the episode, then 1, 2, …"),
  action: z.string().describe("The action as the policy wrote it, or one of the listed actions"),
});

export const Stepped = z.object({
  observation: Observation,
  reward: z.number().describe("Reward of this action alone"),
  done: z.boolean().describe("The game is over; no further step may follow"),
  success: z.boolean().describe("The task is solved now"),
  valid: z.boolean().default(true).describe("The game could interpret the action"),
  effective: z.boolean().default(true).describe("The action changed something"),
  extra: z.record(z.string(), z.number()).default({}).describe("Further metrics by name"),
  admissible: Admissible,
  expert: Expert,
});

export const Close = z.object({ episode: Episode });
export const Closed = z.object({});
export const Failed = z.object({ error: z.string().describe("The error in one line") });

/** A request to the server. */
export type RemoteAsk =
  | ({ readonly ask: "open" } & z.infer<typeof Open>)
  | ({ readonly ask: "step" } & z.infer<typeof Step>)
  | ({ readonly ask: "close" } & z.infer<typeof Close>);

export const answerSchemas = { open: Opened, step: Stepped, close: Closed } as const;
export type AnswerOf<A extends RemoteAsk["ask"]> = z.infer<(typeof answerSchemas)[A]>;
