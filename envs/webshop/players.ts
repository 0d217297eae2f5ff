/** Who goes shopping: by chance, and with a plan. */
import type { Game, Uniform } from "../env.ts";
import { expectGame, type Player } from "../tag.ts";
import { WebShopGame } from "./game.ts";
import type { Goal } from "./product.ts";
import { purchaseReward } from "./reward.ts";

/** Any of the actions shown; a search is for some words of the request. */
export const randomShopper: Player = (game, _actionsLeft, uniform) => {
  const shop = expectGame(game, WebShopGame);
  const { actions } = shop;
  const action = actions[Math.floor(uniform() * actions.length)]!;
  return action === "search[<content>]" ? `search[${someWords(shop.goal.instruction, uniform)}]` : action;
};

/** One to four words in a row, without brackets, which end an action. */
function someWords(text: string, uniform: Uniform): string {
  const words = text.replaceAll(/[[\]]/g, " ").split(/\s+/).filter(Boolean);
  const count = 1 + Math.floor(uniform() * 4);
  const first = Math.floor(uniform() * words.length);
  return words.slice(first, first + count).join(" ");
}

/**
 * Knows which product was meant: searches the words of the request, turns pages until the product is there, chooses what was
 * asked for and buys. With a search that does not find it, it searches its title.
 */
export const expertShopper: Player = (game, actionsLeft) => {
  const { goal, visit, actions } = expectGame(game, WebShopGame);
  const target = `click[${goal.asin.toLowerCase()}]`;
  if (visit.product?.asin === goal.asin) return nextOption(goal, visit.options, actions) ?? "click[buy now]";
  if (visit.product !== null) return "click[back to search]";
  if (actions.includes(target)) return target;
  // Back, a search, the product, its options and the purchase have to fit in.
  const needed = goal.options.length + 4;
  if (actions.includes("click[next >]") && visit.shown.length > 0 && actionsLeft > needed + 1) return "click[next >]";
  if (visit.hasSearchBar) return `search[${searched(goal, actionsLeft > needed + 1)}]`;
  return actions.includes("click[back to search]") ? "click[back to search]" : `search[${searched(goal, false)}]`;
};

/** What was asked for, without options and price; or the title, which nothing else has. */
function searched(goal: Goal, asAsked: boolean): string {
  const text = asAsked ? [...goal.attributes, goal.query].join(" ") : goal.title;
  return text.replaceAll(/[[\]]/g, " ");
}

function nextOption(goal: Goal, chosen: ReadonlyMap<string, string>, actions: readonly string[]): string | null {
  for (const wanted of goal.options) {
    const [name, value] = typeof wanted === "string" ? [null, wanted] : wanted;
    const has = name === null ? [...chosen.values()].includes(value) : chosen.get(name) === value;
    if (!has && actions.includes(`click[${value}]`)) return `click[${value}]`;
  }
  return null;
}

/**
 * 1 where buying what was meant, with the options asked for, is a perfect purchase; else unknown. It takes a search, the product, its
 * options and the purchase.
 */
export function bestPurchase(game: Game, actionsMax: number): number | null {
  const { goal, catalogue } = expectGame(game, WebShopGame);
  if (actionsMax < goal.options.length + 3) return null;
  const product = catalogue.product(goal.asin)!;
  const options = goal.options.map((wanted) => (typeof wanted === "string" ? wanted : wanted[1]));
  return purchaseReward({ product, options, price: product.price }, goal).total >= 1 ? 1 : null;
}
