/**
 * Scores thoughts about a question. The scorer checks whether the calculations in a thought hold ("12 * 3 = 36"), and whether the thought
 * concludes with the answer that the action gives. The scorer does not check whether this answer is right: the reward does.
 */
import { type ReasoningScorer, shareOf } from "../analysis/reasoning.ts";
import { ArithmeticError, evaluateArithmetic } from "../countdown/arithmetic.ts";

/** A calculation and its stated result. The first part matches no operator; otherwise the search would take cubic time in a long thought. */
const EQUATION = /([\d(][\d\s.()]*[+\-*/][\d\s.+\-*/()]*[\d)])\s*=\s*(-?\d+(?:\.(\d+))?)/g;
const CONCLUSION = /\banswer\s+(?:is|must be|should be)\s*:?\s*([^\n]+?)(?:[.!;]?\s*$|[.!;]\s|\n)/gi;

/** @param answerOf  the answer in an action; null if the action gives none */
export const questionScorer =
  (answerOf: (action: string) => string | null = (action) => action): ReasoningScorer =>
  ({ thought, actions }) => {
    const plain = thought
      .replaceAll(/[×·]/g, "*")
      .replaceAll("÷", "/")
      .replaceAll(/\$(?=\d)|(?<=\d),(?=\d{3}\b)/g, "");
    const sums = [...plain.matchAll(EQUATION)].flatMap(([, sum, stated, digits = ""]) => {
      const value = resultOf(sum!);
      // A decimal may be rounded to the digits that it shows.
      const tolerance = digits === "" ? 1e-9 : 0.5 * 10 ** -digits.length + 1e-9;
      return value === null ? [] : [Math.abs(value - Number(stated)) <= tolerance];
    });
    const arrived = [...thought.matchAll(CONCLUSION)].at(-1)?.[1];
    const given = answerOf(actions.at(-1)!);
    return shareOf([...sums, ...(arrived === undefined || given === null ? [] : [simple(arrived) === simple(given)])]);
  };

/** The value of a calculation; null if the text is not arithmetic. */
function resultOf(sum: string): number | null {
  try {
    return evaluateArithmetic(sum);
  } catch (error) {
    if (error instanceof ArithmeticError) return null;
    throw error;
  }
}

/** Letters and digits in lower case; numbers without their commas. */
const simple = (text: string) =>
  text
    .toLowerCase()
    .replaceAll(/(?<=\d),(?=\d{3}\b)/g, "")
    .replaceAll(/[^\p{L}\p{N}.-]+/gu, " ")
    .replaceAll(/\.(?!\d)/g, "")
    .trim();
