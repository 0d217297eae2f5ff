/**
 * Scores a purchase against a goal.
 *
 *   reward = type * (attributes matched + options matched + price fits) / (attributes + options + 1)
 *
 * Source: WebShop web_agent_site/engine/goal.py (get_reward), normalize.py.
 */
import type { Goal, Purchase } from "./product.ts";
import { nouns, similar } from "./text.ts";

export interface PurchaseReward {
  /** In [0, 1]. */
  readonly total: number;
  /** Similarity of the kinds of product: 1, 0.5, 0.1 or 0. */
  readonly type: number;
  /** Share of matched attributes. */
  readonly attributes: number;
  /** Share of matched options; null if the goal has no options. */
  readonly options: number | null;
  readonly price: 0 | 1;
  /** Share of the nouns of the goal's title that occur in the title of the bought product; 0.2 if the goal's title has no nouns. */
  readonly title: number;
}

/** @param nounsOf  gives the nouns of a title, in lower case */
export function purchaseReward(purchase: Purchase, goal: Goal, nounsOf = nouns): PurchaseReward {
  const title = titleScore(purchase.product.title, goal.title, nounsOf);
  const type = typeReward(purchase, goal, title);
  const attributes = goal.attributes.filter((attribute) => hasAttribute(purchase.product, attribute)).length;
  const chosen = [...purchase.options.values()].map(firstColor);
  const options = goal.options.filter((wanted) => chosen.some((value) => similar(value, wantedText(wanted)))).length;
  const price = goal.priceMax === null || purchase.product.price <= goal.priceMax ? 1 : 0;
  return {
    total: (type * (attributes + options + price)) / (goal.attributes.length + goal.options.length + 1),
    type,
    attributes: attributes / goal.attributes.length,
    options: goal.options.length === 0 ? null : options / goal.options.length,
    price,
    title,
  };
}

function titleScore(bought: string, wanted: string, nounsOf: (title: string) => string[]): number {
  const wantedNouns = nounsOf(wanted);
  if (wantedNouns.length === 0) return 0.2;
  const given = new Set(nounsOf(bought));
  return new Set(wantedNouns.filter((noun) => given.has(noun))).size / wantedNouns.length;
}

function typeReward({ product }: Purchase, goal: Goal, title: number): number {
  if (title === 0) return 0;
  if (title < 0.1) return 0.1;
  const place = (path: string) => new Set(path.split("›").map((part) => part.trim()));
  const shared = [...place(product.productCategory)].filter((part) => place(goal.productCategory).has(part)).length;
  return product.query === goal.query || shared >= 2 || title > 0.2 ? 1 : 0.5;
}

function hasAttribute(product: Purchase["product"], attribute: string): boolean {
  return (
    product.attributes.some((own) => similar(own, attribute)) ||
    product.title.toLowerCase().includes(attribute) ||
    product.bullets.join(" ").toLowerCase().includes(attribute) ||
    product.description.toLowerCase().includes(attribute)
  );
}

/**
 * The text that a chosen value must resemble. For a wanted option with a name, it is the listed color that equals the name or the value; if there
 * is none, it is name and value, joined by a space. For a wanted value without a name, it is the text of `firstColor`.
 */
function wantedText(wanted: Goal["options"][number]): string {
  if (typeof wanted === "string") return firstColor(wanted);
  return COLORS.find((color) => wanted.includes(color)) ?? wanted.join(" ");
}

/** The first listed color that occurs in the text; if there is none, the text. */
function firstColor(text: string): string {
  return COLORS.find((color) => text.includes(color)) ?? text;
}

const COLORS =
  `alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel
camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim
eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon
leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange
peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower
tan taupe teal tiger turquoise violet walnut wheat white wine yellow`.split(/\s+/);
