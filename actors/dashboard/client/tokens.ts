/**
 * The tokens of a reply, colored by log-probability or by advantage. Color is never the only sign: each token has its numbers as a
 * title, and unlikely tokens are underlined.
 */
import type { WrittenToken } from "../answers.ts";
import { make } from "./dom.ts";
import { signed, visible } from "./text.ts";

/** Color levels; the style sheet has a rule for each. */
const LEVELS = 5;
/** Advantage of the strongest color. */
const ADVANTAGE_MAX = 2;

/** From 0 for a probability above 67 % to `LEVELS` for one below 2.7 %. */
const surpriseLevel = (logProb: number) => Math.min(LEVELS, Math.floor((-logProb * LEVELS) / 4 + 0.5));

/** From -`LEVELS` to `LEVELS`. */
const advantageLevel = (advantage: number) =>
  Math.sign(advantage) * Math.min(LEVELS, Math.ceil((Math.abs(advantage) * LEVELS) / ADVANTAGE_MAX));

function tokenOf({ text, logProb, advantage }: WrittenToken): HTMLElement {
  const token = make("span", "token", visible(text));
  const probability = `${(100 * Math.exp(logProb)).toFixed(1)} %, log-probability ${logProb.toFixed(3)}`;
  token.title = advantage === null ? probability : `${probability}; advantage ${signed(advantage)}`;
  token.dataset["surprise"] = String(surpriseLevel(logProb));
  token.dataset["advantage"] = String(advantage === null ? 0 : advantageLevel(advantage));
  return token;
}

export const tokensOf = (tokens: readonly WrittenToken[]): HTMLElement => make("p", "tokens", ...tokens.map(tokenOf));
