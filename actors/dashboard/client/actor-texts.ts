/** Describes in words what an actor does or, for a run that has ended, what it did. */
import { percent, plural, whole } from "../../number-text.ts";
import type { ActorsAnswer } from "../answers.ts";
import { bytes } from "./text.ts";

type Actor = ActorsAnswer["actors"][number];

/** Activities in the order of the bar, each in the present and in the past tense. */
const TIMES = [
  { name: "time/update", texts: ["computes updates", "computed updates"], kind: "work" },
  { name: "time/policy", texts: ["generates replies", "generated replies"], kind: "work" },
  { name: "time/busy", texts: ["steps envs", "stepped envs"], kind: "work" },
  { name: "time/weights", texts: ["publishes or loads weights", "published or loaded weights"], kind: "move" },
  { name: "time/save", texts: ["writes checkpoints", "wrote checkpoints"], kind: "move" },
  { name: "time/env", texts: ["waits for env servers", "waited for env servers"], kind: "wait" },
  { name: "time/rollout", texts: ["waits for episodes", "waited for episodes"], kind: "wait" },
  { name: "time/tickets", texts: ["waits for tickets", "waited for tickets"], kind: "wait" },
] as const;
const WAITS = [
  { texts: ["the learner waits", "the learner waited"], what: "for episodes", role: "learner", name: "time/rollout" },
  { texts: ["samplers wait", "samplers waited"], what: "for tickets", role: "sampler", name: "time/tickets" },
  { texts: ["samplers wait", "samplers waited"], what: "for env servers", role: "sampler", name: "time/env" },
  { texts: ["env servers are", "env servers were"], what: "busy", role: "env-server", name: "time/busy" },
] as const;

const tense = (texts: readonly [now: string, then: string], isRecord: boolean) => texts[isRecord ? 1 : 0];

export const doingText = ({ doing }: Actor, isRecord: boolean): string => (isRecord ? `last seen: ${doing}` : doing);

/** Shares of the actor's time; the rest of the time counts as idle. Empty if the actor reports no shares. */
export function timeShares({ load }: Actor, isRecord: boolean) {
  const known = TIMES.flatMap(({ name, texts, kind }) =>
    load[name] === undefined ? [] : [{ text: tense(texts, isRecord), kind, share: load[name] }],
  );
  if (known.length === 0) return [];
  const idle = Math.max(0, 1 - known.reduce((sum, { share }) => sum + share, 0));
  return [...known, { text: isRecord ? "was idle" : "idle", kind: "idle", share: idle }];
}

export type LoadTexts = readonly (readonly [name: string, text: (value: number) => string])[];

export const loadTexts = (texts: LoadTexts, { load }: Actor): string[] =>
  texts.flatMap(([name, text]) => (load[name] === undefined ? [] : [text(load[name])]));

export function rateTexts(actor: Actor, isRecord: boolean): string[] {
  const sends = isRecord ? "sent" : "sends";
  const receives = isRecord ? "received" : "receives";
  const rates: LoadTexts = [
    ["speed/actor_tokens_per_second", (rate) => `${whole(rate)} tokens/s`],
    ["speed/env_steps_per_second", (rate) => `${whole(rate)} steps/s`],
    ["speed/sent_bytes_per_second", (rate) => `${sends} ${bytes(rate)}/s`],
    ["speed/received_bytes_per_second", (rate) => `${receives} ${bytes(rate)}/s`],
  ];
  return [...loadTexts(rates, actor), `${bytes(actor.rssBytes)} memory`];
}

/** Each share of `WAITS`, as a mean over the actors of its role. */
export function summaryOf(actors: readonly Actor[], isRecord: boolean): string {
  const texts = WAITS.flatMap(({ texts, what, role, name }) => {
    const shares = actors.flatMap((actor) => (actor.role === role ? (actor.load[name] ?? []) : []));
    if (shares.length === 0) return [];
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    return [`${tense(texts, isRecord)} ${what} ${percent(mean, 0)}`];
  });
  if (texts.length === 0) return plural(actors.length, "actor");
  return `${texts.join(", ")} of the ${isRecord ? "run's " : ""}last 5 seconds`;
}
