/**
 * WebShop: buy a product that fits a request. The purchase ends the game.
 *
 * - Actions are `search[words]` and `click[label]`; any other text changes nothing and earns nothing.
 * - The layout seed decides the goal; the dynamics are deterministic.
 *
 * Source: RAGEN ragen/env/webshop/env.py over WebShop.
 */
import { z } from "zod";
import type { Effect, LanguageGame } from "../env.ts";
import { pythonFloat } from "../text/numbers.ts";
import type { Catalog } from "./catalog.ts";
import type { Goal, Purchase } from "./product.ts";
import { type PurchaseReward, purchaseReward } from "./reward.ts";
import { Visit } from "./shop.ts";

/** The options of the tags that the game reads. */
export const webShopRules = {
  /** Show a page of attributes for each product. */
  showAttributes: z.boolean().default(false),
  /** whole: WebShop's reward in [0, 1]. perfect: 1 for a perfect purchase and 0 for any other purchase, as in RAGEN-2. */
  rewardForm: z.enum(["whole", "perfect"]).default("whole"),
  /** True: the advice is RAGEN v1's, which joins two of its lines. */
  joinedLines: z.boolean().default(false),
  /**
   * True: an action is valid only if its text is exactly the text in the observation, as in RAGEN v1. False: upper and lower case of a label do
   * not matter.
   */
  literalValid: z.boolean().default(false),
};
type WebShopRules = Readonly<z.infer<z.ZodObject<typeof webShopRules>>>;

const LINES = [
  "We must buy a product within 10 actions. It doesn't have to match perfectly with description.",
  "Search term should not include details like size, color.",
  "Never search for more than 2 times.",
  "Do not be too strict about the description, it's more important to buy one that is close enough within action limit.",
  "Prioritize click a product in the current page over going to next page.",
  "Almost never click[next >] for more than 2 times.",
  "Almost never click[< prev] unless you are sure the product is on one of the previous pages.",
  "If you have less than 3 actions left, just buy the first product you see in the current page.",
  "If an matching option exists, make sure to click[size] then click[color], one at a time, before click[buy now], but don't have to if only 1 action left, in that case you just click[buy now]. Never click description.",
];

/** The advice in every observation between the page and the actions. */
export const ADVICE = LINES.join("\n");
export const JOINED_ADVICE = ADVICE.replace(`${LINES[5]}\n`, LINES[5]!);

export const ACTIONS_HEADING = "\n You must choose from these actions:";

/** The actions of an empty page of results. RAGEN hides the last of these actions. */
const PAGE_END = ["click[back to search]", "click[< prev]", "click[next >]"].join();

export class WebShopGame implements LanguageGame {
  readonly kind = "language";
  readonly catalog: Catalog;
  readonly goal: Goal;
  readonly visit: Visit;
  readonly #rules: WebShopRules;
  /** The page's text; at first only the instruction. */
  #page: string;
  #bought: PurchaseReward | null = null;

  constructor(catalog: Catalog, goal: Goal, rules: WebShopRules) {
    this.catalog = catalog;
    this.goal = goal;
    this.visit = new Visit(catalog, goal.instruction, rules.showAttributes);
    this.#rules = rules;
    this.#page = `Instruction: ${goal.instruction}`;
  }

  /** The actions as the observation shows them: `search[<content>]`, `click[label]`. */
  get actions(): readonly string[] {
    if (this.#bought !== null) return [];
    const all = [
      ...(this.visit.hasSearchBar ? ["search[<content>]"] : []),
      ...this.visit.labels.filter((label) => label !== "search").map((label) => `click[${label}]`),
    ];
    return all.join() === PAGE_END ? all.slice(0, 2) : all;
  }

  render(): string {
    const advice = this.#rules.joinedLines ? JOINED_ADVICE : ADVICE;
    return `${this.#page}.${advice}${ACTIONS_HEADING}${this.actions.join(", ")}.`;
  }

  act(action: string): Effect {
    if (this.#bought !== null) throw new Error("this purchase is made; open a new visit");
    const [, name, argument = ""] = /^(.+)\[(.+)\]/.exec(action) ?? [];
    const before = this.visit.observation();
    const label = argument.toLowerCase();
    const clicks = name === "click" && label !== "search" && this.visit.labels.includes(label);
    const known = clicks || (name === "search" && this.visit.hasSearchBar);
    const valid = this.#rules.literalValid ? this.#isShown(action) : known;
    const purchase = clicks ? this.visit.click(label) : null;
    // As in WebShop, a search works on every page.
    if (name === "search") this.visit.search(label);
    if (purchase === null) this.#page = this.visit.observation();
    else {
      this.#bought = purchaseReward(purchase, this.goal);
      this.#page = lastPage(purchase, this.#bought.total);
    }
    return this.#effect(before, valid);
  }

  #isShown(action: string): boolean {
    return (
      this.actions.includes(action) || (this.visit.hasSearchBar && action.startsWith("search[") && action.endsWith("]"))
    );
  }

  #effect(before: string, valid: boolean): Effect {
    const bought = this.#bought;
    const perfect = bought !== null && bought.total >= 1;
    const reward = this.#rules.rewardForm === "perfect" ? Number(perfect) : (bought?.total ?? 0);
    const atEnd = this.actions.join() === "click[back to search],click[< prev]";
    return {
      reward,
      done: bought !== null,
      effective: this.#page !== before,
      valid,
      success: perfect,
      extra: {
        success_purchase: Number(bought !== null),
        success_find: Number(perfect),
        end_of_page: Number(atEnd),
        raw_reward: bought?.total ?? 0,
        ...(bought === null || perfect ? {} : { premature_stop: 1 }),
        ...(bought === null ? {} : rewardParts(bought)),
      },
    };
  }
}

/** WebShop's last page. Its template also has fields that WebShop leaves empty. */
function lastPage({ product, options }: Purchase, score: number): string {
  return [
    "Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP] Purchased",
    `asin [SEP] ${product.asin} [SEP] options [SEP] ${templateJson(options)} [SEP] attrs [SEP] None [SEP] category [SEP] None`,
    "query [SEP] None [SEP] product category [SEP] None [SEP] Target [SEP] asin [SEP] options [SEP] attrs [SEP] price upper",
    "instuction text [SEP] category [SEP] product category [SEP] query [SEP] Goal [SEP] None [SEP] Reward",
    `Your score (min 0.0, max 1.0) [SEP] ${pythonFloat(score)} [SEP] Reward Details [SEP] None`,
  ].join(" [SEP] ");
}

/** Jinja's `tojson` of a dict of strings: sorted keys, Python's separators, ASCII, HTML's characters escaped. */
function templateJson(options: ReadonlyMap<string, string>): string {
  const text = (value: string) =>
    JSON.stringify(value).replaceAll(
      /[\u007f-\uffff<>&']/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
  const entries = [...options]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${text(name)}: ${text(value)}`);
  return `{${entries.join(", ")}}`;
}

/** The parts of the reward under WebShop's names. */
function rewardParts({ type, attributes, options, price, title }: PurchaseReward): Record<string, number> {
  const named = { r_type: type, r_att: attributes, r_price: price, title_score: title };
  return options === null ? named : { ...named, r_option: options };
}
