/**
 * A shop's products, its search index and its goals. Knows no files and no pages.
 *
 * - A request asks in words for a product. A goal is a request with chosen values of the product's options, and often with a price limit. An
 *   episode has one goal.
 * - A request that a person wrote names its option values, so it makes one goal. Any other request makes one goal for each combination of the
 *   product's options. A full catalog has millions of goals, so `goal` builds a goal from its number on demand.
 * - Two shuffles, WebShop's and RAGEN's, decide the order of goals. A generator with a fixed seed draws the price limits. In RAGEN the limits
 *   differ from process to process.
 *
 * Source: WebShop web_agent_site/engine/goal.py (get_goals); RAGEN ragen/env/webshop/env.py (splits).
 */
import { PythonRandom } from "../rng/mt19937.ts";
import type { Goal, Product, ShopRequest } from "./product.ts";
import { SearchIndex } from "./search.ts";

export type ShopSplit = "train" | "validation" | "test" | "all";

/** Maximum number of results of a search. */
const HITS_MAX = 50;

/** Maximum number of goals. The catalog keeps their order in memory. */
const GOALS_MAX = 2 ** 26;

/** WebShop's seed for the order of goals, and RAGEN's seed for the permutation of this order. */
const ORDER_SEED = 233;
const PERMUTATION_SEED = 42;
const PRICE_SEED = 233;

export class Catalog {
  readonly products: readonly Product[];
  readonly goalCount: number;
  readonly #numbers = new Map<string, number>();
  readonly #index = new SearchIndex();
  /** (products + 1) for each product, the number of goals of all earlier products; the last entry is the number of all goals. */
  readonly #goalsBefore: Float64Array;
  /** (products) price limit in dollars; NaN if the product has no limit. */
  readonly #priceMax: Float64Array;
  /** (goals) goal numbers; each split is a range of this order. */
  readonly #order: Uint32Array;

  /** @throws {RangeError} if there is no goal, or if there are more goals than `GOALS_MAX`. */
  constructor(products: readonly Product[]) {
    this.products = products;
    const random = new PythonRandom(PRICE_SEED);
    this.#goalsBefore = new Float64Array(products.length + 1);
    this.#priceMax = new Float64Array(products.length);
    for (const [number, product] of products.entries()) {
      this.#numbers.set(product.asin, number);
      this.#index.add(indexedText(product));
      this.#priceMax[number] = product.requests.length === 0 ? Number.NaN : drawPriceMax(product.price, random);
      this.#goalsBefore[number + 1] = this.#goalsBefore[number]! + goalsOf(product);
    }
    this.goalCount = this.#goalsBefore.at(-1)!;
    if (this.goalCount === 0) throw new RangeError(`none of ${products.length} products has a goal`);
    if (this.goalCount > GOALS_MAX) {
      const text = `${products.length} products make ${this.goalCount} goals (limit ${GOALS_MAX})`;
      throw new RangeError(`${text}; lower env.options.productsMax`);
    }
    this.#order = orderOf(this.goalCount);
  }

  product(asin: string): Product | undefined {
    const number = this.#numbers.get(asin);
    return number === undefined ? undefined : this.products[number];
  }

  /** The products that match the query, at most 50, best first. */
  search(query: string): Product[] {
    return this.#index.search(query, HITS_MAX).map((number) => this.products[number]!);
  }

  /** The goal of a layout seed. With more than 1,500 goals it is the goal that RAGEN chooses; with fewer, the splits differ from RAGEN's. */
  goalOfSeed(split: ShopSplit, seed: number): Goal {
    const [first, end] = rangeOf(split, this.goalCount);
    return this.goal(this.#order[first + (seed % (end - first))]!);
  }

  /** @param number  0 to `goalCount` - 1, ordered by product, request and combination. */
  goal(number: number): Goal {
    const owner = this.#productOf(number);
    const product = this.products[owner]!;
    let left = number - this.#goalsBefore[owner]!;
    for (const request of product.requests) {
      const count = goalsOfRequest(product, request);
      if (left < count) return this.#build(product, request, left, this.#priceMax[owner]!);
      left -= count;
    }
    throw new RangeError(`there are goals 0 to ${this.goalCount - 1}, got ${number}`);
  }

  #productOf(number: number): number {
    let low = 0;
    let high = this.products.length;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (this.#goalsBefore[middle]! <= number) low = middle;
      else high = middle;
    }
    return low;
  }

  #build(product: Product, request: ShopRequest, combination: number, priceMax: number): Goal {
    const chosen = request.options === null ? combine(product, combination) : null;
    const withOptions = chosen?.map(([name, value]) => `${name}: ${value}`).join(", and ") ?? "";
    const priced = Number.isNaN(priceMax) ? "" : `, and price lower than ${priceMax.toFixed(2)} dollars`;
    return {
      asin: product.asin,
      title: product.title,
      query: product.query,
      productCategory: product.productCategory,
      instruction: `${request.text}${withOptions === "" ? "" : ` with ${withOptions}`}${priced}`,
      attributes: request.attributes,
      options: chosen ?? request.options!,
      priceMax: Number.isNaN(priceMax) ? null : priceMax,
    };
  }
}

/** RAGEN's splits: the first 500 goals of the order are for tests, the next 1,000 for validation, and all others for training. */
const TEST_END = 500;
const VALIDATION_END = 1500;

/**
 * The range of a split in the order of goals. With more than 1,500 goals the splits are RAGEN's. Otherwise the first sixteenth of the goals is
 * for tests, the next eighth for validation, and the rest for training. With fewer than three goals the splits overlap.
 */
function rangeOf(split: ShopSplit, count: number): readonly [first: number, end: number] {
  if (split === "all" || count < 2) return [0, count];
  const test = count > VALIDATION_END ? TEST_END : Math.ceil(count / 16);
  const validation = count > VALIDATION_END ? VALIDATION_END : Math.ceil(count / 8) + test;
  if (split === "test") return [0, test];
  return split === "validation" ? [test, Math.min(validation, count)] : [Math.min(validation, count - 1), count];
}

function orderOf(count: number): Uint32Array {
  const shuffled = Array.from({ length: count }, (_, i) => i);
  new PythonRandom(ORDER_SEED).shuffle(shuffled);
  const permutation = Array.from({ length: count }, (_, i) => i);
  new PythonRandom(PERMUTATION_SEED).shuffle(permutation);
  return Uint32Array.from(permutation, (place) => shuffled[place]!);
}

/**
 * Draws a price limit. The candidates are the next four multiples of 10 above the price that are below 1,000. The function draws two different
 * candidates, and returns the larger. With fewer than two candidates it returns NaN: the product has no price limit.
 */
function drawPriceMax(price: number, random: PythonRandom): number {
  const next = 10 * (Math.floor(price / 10) + 1);
  const above = [next, next + 10, next + 20, next + 30].filter((limit) => limit < 1000);
  return above.length < 2 ? Number.NaN : Math.max(...random.sample(above, 2));
}

function goalsOf(product: Product): number {
  return product.requests.reduce((sum, request) => sum + goalsOfRequest(product, request), 0);
}

function goalsOfRequest({ options }: Product, request: ShopRequest): number {
  if (request.options !== null) return 1;
  return [...options.values()].reduce((product, values) => product * values.length, 1);
}

/** Combination `number` of the options in the order of their names; the value of the last name changes fastest. */
function combine({ options }: Product, number: number): [name: string, value: string][] {
  const names = [...options.keys()].sort();
  const chosen: [string, string][] = [];
  let left = number;
  for (const name of names.reverse()) {
    const values = options.get(name)!;
    chosen.unshift([name, values[left % values.length]!]);
    left = Math.floor(left / values.length);
  }
  return chosen;
}

/** The text of a product in the search index. Source: WebShop search_engine/convert_product_file_format.py. */
function indexedText({ title, description, bullets, options }: Product): string {
  const values = [...options].map(([name, all]) => `${name}: ${all.join(", ")}`).join(", and ");
  return [title, description, bullets[0] ?? "", values].join(" ").toLowerCase();
}
