/**
 * Scores thoughts in the shop: products and prices that they name must be on the page or in the request, and the step that they
 * announce ("I search for …", "buy it now", "click B07XYZ1234") must be the action taken.
 */
import { clausesOf, isDenied, type ReasoningScorer, shareOf } from "../analysis/reasoning.ts";

const PRODUCT = /\bB[0-9A-Z]{9}\b/gi;
const PRICE = /\$\s?(\d+(?:\.\d+)?)|\b(\d+(?:\.\d+)?) dollars\b/gi;

/** Announcements, and the action that each requires. */
const STEPS: readonly (readonly [said: RegExp, done: RegExp])[] = [
  [/\b(?:i|i'll|will|to|let me|let's) search\b/i, /^search\[/i],
  [/\bbuy (?:it|this|now|the)\b/i, /^click\[buy now\]/i],
  [/\b(?:go|going) back\b/i, /^click\[(?:back to search|< prev)\]/i],
  [/\bnext page\b/i, /^click\[next >\]/i],
];

export const shopScorer: ReasoningScorer = ({ thought, observation, actions }) => {
  const page = observation.toLowerCase();
  const action = actions[0]!.toLowerCase();
  const numbers = new Set([...observation.matchAll(/\d+(?:\.\d+)?/g)].map(([number]) => Number(number)));
  const products = [...thought.matchAll(PRODUCT)].map(([id]) => page.includes(id.toLowerCase()));
  const prices = [...thought.matchAll(PRICE)].map(([, dollars, words]) => numbers.has(Number(dollars ?? words)));
  // The first announcement is about this turn; later ones may be about turns to come.
  const plan = clausesOf(thought)
    .filter((clause) => !isDenied(clause))
    .flatMap((clause) => {
      const clicked = /\b(?:click|choose|select|open|pick)(?:\s+on)?\s+(.+)$/i.exec(clause)?.[1]?.toLowerCase();
      const label = clicked === undefined ? undefined : labelsOf(page).find((one) => clicked.includes(one));
      if (label !== undefined) return [action === `click[${label}]`];
      const step = STEPS.find(([said]) => said.test(clause));
      return step === undefined ? [] : [step[1].test(action)];
    });
  return shareOf([...products, ...prices, ...plan.slice(0, 1)]);
};

/** The labels that the observation offers to click, longest first: "red" is part of "dark red". */
const labelsOf = (page: string) =>
  [...page.matchAll(/click\[([^\]]+)\]/g)].map(([, label]) => label!).sort((a, b) => b.length - a.length);
