/** The players of WebShop, and the scorer of thoughts about a shop. */
import { clausesOf, isDenied, type ReasoningScorer, shareOf } from "../analysis/reasoning.ts";
import type { Game, Uniform } from "../env.ts";
import { expectGame, type Player } from "../tag.ts";
import { WebShopGame } from "./game.ts";
import type { Goal } from "./product.ts";
import { purchaseReward } from "./reward.ts";

/** Chooses one of the shown actions at random. For a search it takes some words of the request. */
export const randomShopper: Player = (game, _actionsLeft, uniform) => {
  const shop = expectGame(game, WebShopGame);
  const { actions } = shop;
  const action = actions[Math.floor(uniform() * actions.length)]!;
  return action === "search[<content>]" ? `search[${someWords(shop.goal.instruction, uniform)}]` : action;
};

/** One to four consecutive words, without brackets: a `[` would make the action invalid. */
function someWords(text: string, uniform: Uniform): string {
  const words = text.replaceAll(/[[\]]/g, " ").split(/\s+/).filter(Boolean);
  const count = 1 + Math.floor(uniform() * 4);
  const first = Math.floor(uniform() * words.length);
  return words.slice(first, first + count).join(" ");
}

/**
 * This player knows the wanted product. It searches for the goal's attributes and query, turns pages until the product appears, chooses the
 * wanted options and buys. When few actions are left, the player searches for the product's title.
 */
export const expertShopper: Player = (game, actionsLeft) => {
  const { goal, visit, actions } = expectGame(game, WebShopGame);
  const target = `click[${goal.asin.toLowerCase()}]`;
  if (visit.product?.asin === goal.asin) return nextOption(goal, visit.options, actions) ?? "click[buy now]";
  if (visit.product !== null) return "click[back to search]";
  if (actions.includes(target)) return target;
  // The actions still needed: back, a search, a click on the product, its options, the purchase.
  const needed = goal.options.length + 4;
  if (actions.includes("click[next >]") && visit.shown.length > 0 && actionsLeft > needed + 1) return "click[next >]";
  if (visit.hasSearchBar) return `search[${queryOf(goal, actionsLeft > needed + 1)}]`;
  return actions.includes("click[back to search]") ? "click[back to search]" : `search[${queryOf(goal, false)}]`;
};

/** The text to search for: the goal's attributes and query if `ofRequest` is true, otherwise the title of the goal's product. */
function queryOf(goal: Goal, ofRequest: boolean): string {
  const text = ofRequest ? [...goal.attributes, goal.query].join(" ") : goal.title;
  return text.replaceAll(/[[\]]/g, " ");
}

const wantedValue = (wanted: Goal["options"][number]): string => (typeof wanted === "string" ? wanted : wanted[1]);

/** As in WebShop, the text from the last `[` on is the label of a click. So no click chooses a value that has a `[`. */
const isClickable = (value: string): boolean => !value.includes("[");

function nextOption(goal: Goal, chosen: ReadonlyMap<string, string>, actions: readonly string[]): string | null {
  for (const value of goal.options.map(wantedValue).filter(isClickable)) {
    // If two options have the same value, a click sets the later option. So any option with the value counts.
    const has = [...chosen.values()].includes(value);
    if (!has && actions.includes(`click[${value}]`)) return `click[${value}]`;
  }
  return null;
}

/**
 * 1 if the product has the wanted options, and if its purchase with these options is perfect and needs at most `actionsMax` actions. Otherwise
 * null, because the highest possible success is unknown.
 */
export function bestPurchase(game: Game, actionsMax: number): number | null {
  const { goal, catalog } = expectGame(game, WebShopGame);
  if (actionsMax < goal.options.length + 3) return null;
  const product = catalog.product(goal.asin)!;
  const offered = [...product.options.values()].flat().filter(isClickable);
  if (!goal.options.map(wantedValue).every((value) => offered.includes(value))) return null;
  const options = new Map(goal.options.map((wanted, i) => (typeof wanted === "string" ? [String(i), wanted] : wanted)));
  return purchaseReward({ product, options }, goal).total >= 1 ? 1 : null;
}

/** Ids of products: WebShop's, then those of a generated catalog. An id has a digit; "breathable" is a word. */
const PRODUCT = /\b(?=[A-Z]*\d)(?:B[0-9A-Z]|MU)[0-9A-Z]{8}\b/gi;
const PRICE = /\$\s?(\d+(?:\.\d+)?)|\b(\d+(?:\.\d+)?) dollars\b/gi;

/** Announcements in thoughts, each with the action that must follow. */
const STEPS: readonly (readonly [said: RegExp, done: RegExp])[] = [
  [/\b(?:i|i'll|will|to|let me|let's) search\b/i, /^search\[/i],
  [/\bbuy (?:it|this|now|the)\b/i, /^click\[buy now\]/i],
  [/\b(?:go|going) back\b/i, /^click\[(?:back to search|< prev)\]/i],
  [/\bnext page\b/i, /^click\[next >\]/i],
];

/**
 * Scores thoughts in the shop. Products and prices that a thought names must be on the page or in the request. The step that a thought
 * announces ("I search for …", "buy it now", "click B07XYZ1234") must be the turn's first action.
 */
export const shopScorer: ReasoningScorer = ({ thought, observation, actions }) => {
  const page = observation.toLowerCase();
  const action = actions[0]!.toLowerCase();
  const numbers = new Set([...observation.matchAll(/\d+(?:\.\d+)?/g)].map(([number]) => Number(number)));
  const products = [...thought.matchAll(PRODUCT)].map(([id]) => page.includes(id.toLowerCase()));
  const prices = [...thought.matchAll(PRICE)].map(([, dollars, words]) => numbers.has(Number(dollars ?? words)));
  // The first announcement is about this turn; later announcements may be about later turns.
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
