/** One episode turn by turn, as elements. Everything that a model or an env wrote goes through `visible` into text nodes. */
import { observationOf } from "./board.js";
import { make, plural, signed } from "./dom.js";
import { splitReply, visible } from "./text.ts";
import { tokensOf } from "./tokens.js";

const STOPS = {
  success: "solved",
  over: "game over",
  actions: "out of actions",
  turns: "out of turns",
  context: "out of context",
};

export const outcomeText = ({ status, stop }) =>
  stop === null ? (status === "aborted" ? "aborted" : "env error") : STOPS[stop];
export const outcomeKind = ({ success }) => (success === null ? "bad" : success ? "good" : "plain");

function chipsOf(turn) {
  const chip = (kind, text) => make("span", `chip ${kind}`, text);
  const chips = [chip(turn.reward > 0 ? "good" : "plain", `reward ${signed(turn.reward)}`)];
  if (turn.penalty !== 0) chips.push(chip("bad", `penalty ${signed(turn.penalty)}`));
  if (!turn.wellFormed) chips.push(chip("bad", "wrong form"));
  if (turn.cut) chips.push(chip("bad", "cut at the limit"));
  if (turn.dropped > 0) chips.push(chip("plain", `${plural(turn.dropped, "turn")} forgotten`));
  if (turn.actions.length > 0 && !turn.effective) chips.push(chip("plain", "no effect"));
  return make("p", "chips", ...chips);
}

function turnOf(turn, index, told, tokens) {
  const { thought, answer, raw } = splitReply(turn.reply);
  const reply = make("dl", "reply");
  const say = (term, text, kind) => reply.append(make("dt", "", term), make("dd", kind, visible(text)));
  if (thought !== null) say("Thought", thought || "(empty)", "thought");
  if (answer !== null) say("Answer", answer, "answer");
  if (raw !== null) say("Reply without an answer", raw === "" ? "(empty)" : raw, "raw");
  say("Played", turn.actions.length === 0 ? "nothing" : turn.actions.join(", "), "");
  const parts = [reply, chipsOf(turn)];
  if (told !== null) {
    parts.push(make("details", "", make("summary", "", "Prompt"), make("p", "tokens", visible(told))));
  }
  if (tokens !== null) {
    parts.push(make("details", "", make("summary", "", plural(tokens.length, "token")), tokensOf(tokens)));
  }
  return make(
    "li",
    "turn",
    make("h4", "", `Turn ${index + 1}`),
    observationOf(turn.observation),
    make("div", "", ...parts),
  );
}

function factsOf({ summary, row }) {
  const { ticket } = row;
  const trained = ticket.purpose === "validate" ? "validation" : "not trained on";
  return [
    `board seed ${ticket.layoutSeed}`,
    summary.version === null ? "not played" : `policy version ${summary.version}`,
    summary.update === null ? trained : `trained in update ${summary.update}`,
    ...(summary.advantage === null ? [] : [`advantage ${signed(summary.advantage)}`]),
    plural(summary.writtenTokens, "token"),
    summary.sampler,
  ];
}

/** @param between  elements between the head and the turns */
export function detailOf({ summary, row, told, written }, ...between) {
  const { ticket, outcome } = row;
  const head = make(
    "header",
    "",
    make(
      "h3",
      "",
      make("span", `chip ${outcomeKind(summary)}`, outcomeText(summary)),
      ` ${visible(ticket.env)}`,
      ...(summary.reward === null ? [] : [make("b", "", `reward ${signed(summary.reward)}`)]),
    ),
    make("p", "note", visible(factsOf({ summary, row }).join(" · "))),
  );
  if (!("turns" in outcome)) return [head, make("p", "said", visible(outcome.detail))];
  const last = make("li", "turn", make("h4", "", "End"), observationOf(outcome.finalObservation), make("div", ""));
  const turns = outcome.turns.map((turn, i) => turnOf(turn, i, told?.[i] ?? null, written?.[i] ?? null));
  return [head, ...between, make("ol", "turns", ...turns, last)];
}
