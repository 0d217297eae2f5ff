/**
 * Judges compare an answer with the label. The judges named after RAGEN judge as RAGEN's code does. The other judges correct these errors
 * of RAGEN: RAGEN's number judge reads "2,500" as 2 and "-3" as 3, its comparison of texts drops the point of "1.5", and its choice judge
 * takes the A of "answer" for a choice.
 *
 * Source: RAGEN ragen/env/metamathqa/env.py, ragen/env/static/utils.py.
 */

import { SPACE } from "../text/answer.ts";
import { asciiDigits } from "../text/numbers.ts";

export interface Judgement {
  readonly correct: boolean;
  /** False if the answer contains no candidate (no number, no letter, no text). */
  readonly valid: boolean;
}

export type Judge = (answer: string, label: string | null) => Judgement;

const SPACES = new RegExp(`${SPACE}+`, "g");
const withoutSpace = (text: string) => text.toLowerCase().replaceAll(SPACES, "");

/** The judge of the tag MetamathQA: an answer is correct if it equals the label, apart from case and white space. */
export const judgeExact: Judge = (answer, label) => ({
  correct: label !== null && withoutSpace(answer) === withoutSpace(label),
  valid: withoutSpace(answer) !== "",
});

/** Compares the first number of the answer with the first number of the label. Reads sign, decimals and thousands separators. */
export const judgeNumber: Judge = (answer, label) => {
  const given = firstNumber(answer);
  return { correct: given !== null && given === firstNumber(label ?? ""), valid: given !== null };
};

/** Compares the first capital A to D that stands alone, the article "A" included. A small letter counts only as the whole answer. */
export const judgeChoice: Judge = (answer, label) => {
  const given = /\b[A-D]\b/.exec(answer)?.[0] ?? /^\s*\(?([a-d])\)?[.:]?\s*$/.exec(answer)?.[1]?.toUpperCase();
  return { correct: given !== undefined && given === label, valid: given !== undefined };
};

/** The number as text, with all digits: a JavaScript number keeps only about 16. Equal numbers have equal texts. */
function firstNumber(text: string): string | null {
  const plain = asciiDigits(text).replaceAll("\u2212", "-");
  const found = /-?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![.\d])\.\d+)/.exec(plain)?.[0];
  if (found === undefined) return null;
  const [, sign, whole, fraction = ""] = /^(-?)0*([\d,]*)(?:\.(\d*?)0*)?$/.exec(found)!;
  const digits = `${whole!.replaceAll(",", "")}.${fraction}`;
  return digits === "." ? digits : sign + digits;
}

/** RAGEN's `normalize_text`: the text without white space and ASCII punctuation. */
const normalized = (text: string) => withoutSpace(text).replaceAll(/[!-/:-@[-`{-~]/g, "");

const sameText = (answer: string, label: string | null) => label !== null && normalized(answer) === normalized(label);

export const ragenExact: Judge = (answer, label) => ({
  correct: sameText(answer, label),
  valid: normalized(answer) !== "",
});

export const ragenNumber: Judge = (answer, label) => {
  const number = (text: string) => /\d+(?:\.\d+)?/.exec(asciiDigits(text))?.[0];
  const given = number(answer);
  const wanted = number(label ?? "");
  const equal = given !== undefined && wanted !== undefined && Number(given) === Number(wanted);
  return { correct: equal || sameText(answer, label), valid: given !== undefined };
};

export const ragenChoice: Judge = (answer, label) => {
  const letter = (text: string) => /[A-D]/.exec(text.toUpperCase())?.[0];
  const given = letter(answer);
  const wanted = letter(label ?? "");
  const read = given !== undefined && wanted !== undefined;
  return { correct: read ? given === wanted : sameText(answer, label), valid: given !== undefined };
};
