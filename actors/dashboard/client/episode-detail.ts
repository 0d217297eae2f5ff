/** One episode turn by turn, as elements. All text of a model or an env goes through `visible` into text nodes. */

import { plural } from "../../number-text.ts";
import type { EpisodeAnswer, EpisodeSummary, WrittenToken } from "../answers.ts";
import { observationOf, type Symbols } from "./board.ts";
import { make } from "./dom.ts";
import { signed, splitReply, visible } from "./text.ts";
import { tokensOf } from "./tokens.ts";

type Turn = Extract<EpisodeAnswer["row"]["outcome"], { turns: unknown }>["turns"][number];

const STOPS = {
  success: "solved",
  over: "game over",
  actions: "out of actions",
  turns: "out of turns",
  context: "out of context",
} as const;

export function outcomeChip({ status, stop, success }: EpisodeSummary): HTMLElement {
  const text = stop === null ? (status === "aborted" ? "aborted" : "env error") : STOPS[stop];
  return make("span", `chip ${success === null ? "bad" : success ? "good" : "plain"}`, text);
}

function chipsOf(turn: Turn): HTMLElement {
  const chip = (kind: string, text: string) => make("span", `chip ${kind}`, text);
  const chips = [chip(turn.reward > 0 ? "good" : "plain", `reward ${signed(turn.reward)}`)];
  if (turn.penalty !== 0) chips.push(chip("bad", `penalty ${signed(turn.penalty)}`));
  if (!turn.wellFormed) chips.push(chip("bad", "malformed"));
  if (turn.cut) chips.push(chip("bad", "cut at the token limit"));
  if (turn.dropped > 0) chips.push(chip("plain", `${plural(turn.dropped, "turn")} dropped from the context`));
  if (turn.actions.length > 0 && !turn.effective) chips.push(chip("plain", "no effect"));
  return make("p", "chips", ...chips);
}

function turnOf(
  turn: Turn,
  index: number,
  observation: HTMLElement,
  prompt: string | null,
  tokens: readonly WrittenToken[] | null,
): HTMLElement {
  const { thought, answer, raw } = splitReply(turn.reply);
  const reply = make("dl", "reply");
  const add = (term: string, text: string, kind: string) =>
    reply.append(make("dt", "", term), make("dd", kind, visible(text)));
  if (thought !== null) add("Thought", thought || "(empty)", "thought");
  if (answer !== null) add("Answer", answer, "answer");
  if (raw !== null) add("Reply without an answer", raw === "" ? "(empty)" : raw, "raw");
  add("Actions", turn.actions.length === 0 ? "none" : turn.actions.join(", "), "");
  const parts = [reply, chipsOf(turn)];
  if (prompt !== null) {
    parts.push(make("details", "", make("summary", "", "Prompt"), make("p", "tokens", visible(prompt))));
  }
  if (tokens !== null) {
    parts.push(make("details", "", make("summary", "", plural(tokens.length, "token")), tokensOf(tokens)));
  }
  return turnRow(`Turn ${index + 1}`, observation, parts);
}

const turnRow = (title: string, observation: HTMLElement, parts: readonly HTMLElement[]) =>
  make("li", "turn", make("h4", "", title), observation, make("div", "", ...parts));

function factsOf({ summary, row }: EpisodeAnswer): string[] {
  const { layoutSeed, purpose } = row.ticket;
  const untrained = purpose === "validate" ? "validation" : "not trained on";
  return [
    `board seed ${layoutSeed}`,
    summary.version === null ? "not played" : `policy version ${summary.version}`,
    summary.update === null ? untrained : `trained in update ${summary.update}`,
    ...(summary.advantage === null ? [] : [`advantage ${signed(summary.advantage)}`]),
    plural(summary.writtenTokens, "token"),
    summary.sampler,
  ];
}

/** @param symbols  of its env. @param between  elements between the head and the turns */
export function detailOf(episode: EpisodeAnswer, symbols: Symbols, ...between: readonly HTMLElement[]): HTMLElement[] {
  const { summary, row, prompts, written } = episode;
  const { outcome } = row;
  const title = make("h3", "", outcomeChip(summary), ` ${visible(summary.env)}`);
  if (summary.reward !== null) title.append(make("b", "", `reward ${signed(summary.reward)}`));
  const head = make("header", "", title, make("p", "note", visible(factsOf(episode).join(" · "))));
  if (!("turns" in outcome)) return [head, make("p", "said", visible(outcome.detail))];
  const seen = (observation: string) => observationOf(observation, symbols);
  const turns = outcome.turns.map((turn, i) =>
    turnOf(turn, i, seen(turn.observation), prompts?.[i] ?? null, written?.[i] ?? null),
  );
  return [head, ...between, make("ol", "turns", ...turns, turnRow("End", seen(outcome.finalObservation), []))];
}
