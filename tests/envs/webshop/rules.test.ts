/** Bounds of WebShop's rules and reward, which its recorded visits do not reach. */
import { describe, expect, test } from "bun:test";
import { Catalog, type ShopSplit } from "../../../envs/webshop/catalog.ts";
import { WebShopGame } from "../../../envs/webshop/game.ts";
import { madeUpProducts } from "../../../envs/webshop/made-up.ts";
import { bestPurchase, expertShopper, randomShopper } from "../../../envs/webshop/players.ts";
import type { Goal, Product } from "../../../envs/webshop/product.ts";
import { purchaseReward } from "../../../envs/webshop/reward.ts";

const [some] = madeUpProducts(24, 0) as [Product];
const shelf = { ...some, options: new Map<string, string[]>() };
const rules = { rewardForm: "whole", showAttributes: false, joinedLines: false, literalValid: false } as const;
const request = { text: "buy", attributes: ["soft"], options: null };

describe("the type of a purchase", () => {
  const [far, near] = ["Home › Kitchen › Lamps", "Home › Garden › Lamps"];
  // WebShop: get_type_reward. Nouns are the words of a title.
  test.each([
    ["no noun is shared", "a b", "c", { query: true, category: far }, 0],
    ["less than a tenth of the nouns is shared", "a b c d e f g h i j k", "a", { query: true, category: far }, 0.1],
    ["a tenth is shared, and the query", "a b c d e f g h i j", "a", { query: true }, 1],
    ["a tenth is shared, and nothing else", "a b c d e f g h i j", "a", {}, 0.5],
    ["a tenth is shared, and one category", "a b c d e f g h i j", "a", { category: "Home › Tools" }, 0.5],
    ["a tenth is shared, and two categories", "a b c d e f g h i j", "a", { category: near }, 1],
    [
      "a tenth is shared, and two categories, by other spaces",
      "a b c d e f g h i j",
      "a",
      { category: "Lamps›Home" },
      1,
    ],
    ["a fifth is shared", "a b c d e", "a", {}, 0.5],
    ["more than a fifth is shared", "a b c d e f g h i", "a b", {}, 1],
    ["the goal has no nouns", "", "a", {}, 0.5],
    ["the goal has no nouns, and the query is shared", "", "a", { query: true }, 1],
  ])(
    "where %s",
    (_, wanted, given, { query = false, category = "Toys" }: { query?: boolean; category?: string }, type) => {
      const goal: Goal = { ...goalOf(20), title: wanted, query: "lamp", productCategory: far };
      const product = { ...shelf, title: given, query: query ? "lamp" : "rug", productCategory: category };
      const wordsOf = (title: string) => title.split(" ").filter((word) => word !== "");
      expect(purchaseReward({ product, options: new Map() }, goal, wordsOf).type).toBe(type);
    },
  );
});

function goalOf(priceMax: number | null): Goal {
  const { asin, title, query, productCategory } = shelf;
  return { asin, title, query, productCategory, instruction: "buy", attributes: ["soft"], options: [], priceMax };
}

test("the title of a goal without nouns scores .2", () => {
  expect(purchaseReward({ product: shelf, options: new Map() }, goalOf(20), () => []).title).toBe(0.2);
});

test("a price may equal its limit", () => {
  const paid = (price: number) =>
    purchaseReward({ product: { ...shelf, price }, options: new Map() }, goalOf(20)).price;
  expect([paid(20), paid(20.01)]).toEqual([1, 0]);
});

describe("a visit", () => {
  const catalog = new Catalog([{ ...shelf, price: 5, attributes: ["soft"], requests: [request] }]);
  const visit = (options: object = {}) => new WebShopGame(catalog, goalOf(20), { ...rules, ...options });

  test("in literal mode takes a search as it is shown, where one is shown", () => {
    const valid = (...actions: string[]) => {
      const game = visit({ literalValid: true });
      return actions.map((action) => game.act(action).valid);
    };
    expect(valid("search[lamp]", "search[lamp]")).toEqual([true, false]);
    expect(valid("search[lamp] now", "click[back to search]", "search[lamp]")).toEqual([false, true, true]);
    expect(valid("research[lamp]", "buy]")).toEqual([false, false]);
  });

  test("has the parts of the reward once something is bought", () => {
    const game = visit();
    const before = game.act(`search[${shelf.title}]`).extra!;
    expect(before).toMatchObject({ raw_reward: 0, success_purchase: 0 });
    expect(before).not.toContainAnyKeys(["premature_stop", "r_type"]);
    game.act(`click[${shelf.asin.toLowerCase()}]`);
    const { extra, success } = game.act("click[buy now]");
    expect(extra).toMatchObject({ raw_reward: 1, r_type: 1, r_att: 1, r_price: 1, title_score: 1 });
    expect([success, "premature_stop" in extra!, "r_option" in extra!]).toEqual([true, false, false]);
  });

  test("that ends with another product stops too early", () => {
    const goal: Goal = { ...goalOf(1), options: ["red"] };
    const game = new WebShopGame(catalog, goal, rules);
    game.act(`search[${shelf.title}]`);
    game.act(`click[${shelf.asin.toLowerCase()}]`);
    expect(game.act("click[buy now]").extra).toMatchObject({ premature_stop: 1, r_price: 0, r_option: 0 });
  });
});

test("the last page has the options as Jinja writes them: sorted, in ASCII", () => {
  const options = new Map([
    ["size", ["l"]],
    ["color", ["é<'"]],
  ]);
  const game = new WebShopGame(new Catalog([{ ...shelf, options, requests: [request] }]), goalOf(20), rules);
  for (const action of [`search[${shelf.title}]`, `click[${shelf.asin}]`, "click[l]", "click[é<']", "click[buy now]"])
    game.act(action);
  expect(game.render()).toContain('options [SEP] {"color": "\\u00e9\\u003c\\u0027", "size": "l"} [SEP] attrs');
});

test("the random player searches one to four words of the request that follow each other, or clicks", () => {
  const catalog = new Catalog([{ ...shelf, requests: [request] }]);
  const goal = { ...goalOf(20), instruction: "a [big] soft red lamp" };
  const game = new WebShopGame(catalog, goal, rules);
  const play = (...draws: number[]) => randomShopper(game, 9, () => draws.shift()!);
  expect([play(0, 0, 0), play(0.9, 0.6, 0.3), play(0, 0.99, 0.99)]).toEqual([
    "search[a]",
    "search[big soft red]",
    "search[lamp]",
  ]);
  game.act(`search[${shelf.title}]`);
  expect([play(0), play(0.5), play(0.99)]).toEqual([...game.actions]);
});

test("the best possible purchase searches, opens the product, chooses its options and buys", () => {
  const options = new Map([["size", ["l"]]]);
  const catalog = new Catalog([{ ...shelf, price: 5, attributes: ["soft"], options, requests: [request] }]);
  const best = (priceMax: number, actionsMax: number) =>
    bestPurchase(new WebShopGame(catalog, { ...goalOf(priceMax), options: [["size", "l"]] }, rules), actionsMax);
  expect([best(20, 3), best(20, 4), best(1, 4)]).toEqual([null, 1, null]);
});

test("an option that no click can choose does not keep the expert from buying, and its best purchase is unknown", () => {
  const options = new Map([["color", ["red [matte]", "red"]]]);
  const catalog = new Catalog([{ ...shelf, price: 5, attributes: ["soft"], options, requests: [request] }]);
  const open = (...wanted: Goal["options"]) => new WebShopGame(catalog, { ...goalOf(20), options: wanted }, rules);
  const game = open(["color", "red [matte]"]);
  const acted = [];
  for (let left = 9; left > 0 && acted.at(-1) !== "click[buy now]"; left--) {
    const action = String(expertShopper(game, left, Math.random));
    acted.push(action);
    game.act(action);
  }
  expect(acted.slice(1)).toEqual([`click[${shelf.asin.toLowerCase()}]`, "click[buy now]"]);
  const best = (...wanted: Goal["options"]) => bestPurchase(open(...wanted), 9);
  expect([best(["color", "red [matte]"]), best("green"), best("red")]).toEqual([null, null, 1]);
});

test("the search reads the title, the description, the first bullet and the options, in any case", () => {
  const words = { title: "LAMP", description: "Tall", bullets: ["Oak", "Pine"], options: new Map([["Size", ["XL"]]]) };
  const catalog = new Catalog([{ ...shelf, ...words, requests: [request] }]);
  const found = ["lamp", "tall", "oak", "size", "xl", "pine"].map((word) => catalog.search(word).length);
  expect(found).toEqual([1, 1, 1, 1, 1, 0]);
  const bare = new Catalog([{ ...shelf, ...words, bullets: [], requests: [request] }]);
  expect(bare.search("undefined")).toEqual([]);
});

describe("goals", () => {
  test("combine the options in the order of their names; the last name changes fastest", () => {
    const options = new Map([
      ["size", ["s", "l"]],
      ["color", ["red", "tan"]],
    ]);
    const catalog = new Catalog([{ ...shelf, options, requests: [request] }]);
    const values = [0, 1, 2, 3].map((number) =>
      catalog
        .goal(number)
        .options.map((option) => option[1])
        .join(" "),
    );
    expect(values).toEqual(["red s", "red l", "tan s", "tan l"]);
  });

  const shop = (count: number) =>
    new Catalog(Array.from({ length: count }, (_, i) => ({ ...shelf, asin: `A${i}`, requests: [request] })));

  test("are split by shares where RAGEN's splits leave none for training; one goal is in all of them", () => {
    const sizes = (count: number) => {
      const catalog = shop(count);
      const seen = (split: ShopSplit) =>
        new Set(Array.from({ length: 1600 }, (_, seed) => catalog.goalOfSeed(split, seed).asin)).size;
      return (["test", "validation", "train"] as const).map(seen);
    };
    expect(sizes(1)).toEqual([1, 1, 1]);
    expect(sizes(2)).toEqual([1, 1, 1]);
    expect(sizes(3)).toEqual([1, 1, 1]);
    expect(sizes(161)).toEqual([11, 21, 129]);
    expect(sizes(1500)).toEqual([94, 188, 1218]);
    expect(sizes(1501)).toEqual([500, 1000, 1]);
  });

  test("of one product are numbered by request", () => {
    const written = (text: string) => ({ text, attributes: ["soft"], options: [] });
    const requests = [written("first"), written("second")];
    const catalog = new Catalog([
      { ...shelf, requests },
      { ...shelf, asin: "OTHER", requests: [written("third")] },
    ]);
    const texts = [0, 1, 2].map((number) => catalog.goal(number).instruction.split(",")[0]);
    expect(texts).toEqual(["first", "second", "third"]);
    expect(() => catalog.goal(3)).toThrow("there are goals 0 to 2, got 3");
  });

  test("have a limit of price above the price and below 1,000 dollars, if two are left to draw from", () => {
    const limits = (price: number) => {
      const products = Array.from({ length: 60 }, (_, i) => ({ ...shelf, asin: `A${i}`, price, requests: [request] }));
      const catalog = new Catalog(products);
      const drawn = products.map((_, number) => catalog.goal(number).priceMax);
      return [...new Set(drawn)].sort((a, b) => a! - b!);
    };
    expect(limits(9.99)).toEqual([20, 30, 40]);
    expect(limits(10)).toEqual([30, 40, 50]);
    expect(limits(965)).toEqual([980, 990]);
    expect(limits(975)).toEqual([990]);
    expect(limits(980)).toEqual([null]);
    expect(limits(2000)).toEqual([null]);
  });
});
