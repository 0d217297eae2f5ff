/**
 * Generates a catalog for use without WebShop's files: products of two dozen kinds. Titles, attributes, options and prices vary, and each
 * product has a request. Equal seeds make equal catalogs. No product is from WebShop.
 *
 * - A product has all attributes of its request and mentions them in its title or features.
 */

import { Pcg64 } from "../rng/pcg64.ts";
import { pythonFloat } from "../text/numbers.ts";
import type { Product } from "./product.ts";

interface Kind {
  readonly name: string;
  /** The categories of the kind: "A › B › C". */
  readonly place: string;
  readonly attributes: readonly string[];
  readonly options: Readonly<Record<string, readonly string[]>>;
  /** Bounds of the price in dollars. */
  readonly price: readonly [low: number, high: number];
}

const COLORS = ["black", "navy blue", "forest green", "wine red", "ivory", "charcoal gray", "mustard yellow", "lilac"];
const SIZES = ["x-small", "small", "medium", "large", "x-large", "xx-large"];
const SHOE_SIZES = ["6", "7", "7.5", "8", "8.5", "9", "10", "11"];
const CLOTHES =
  "machine wash, long sleeve, slim fit, quick drying, polyester spandex, button closure, moisture wicking, tumble dry, stretch fabric";
const SHOES =
  "rubber sole, memory foam, arch support, non slip, wide width, closed toe, ankle strap, lace closure, water resistant";
const FOOD =
  "gluten free, non gmo, low sugar, dairy free, keto friendly, artificial flavors free, high protein, ready to eat, resealable bag";
const HOME =
  "easy assemble, space saving, solid wood, easy clean, heavy duty, eco friendly, mid century, stainless steel, wall mounted";
const BEAUTY =
  "cruelty free, paraben free, sulfate free, tea tree, coconut oil, hyaluronic acid, long lasting, fragrance free, sensitive skin";
const GADGET =
  "fast charging, plug and play, noise cancelling, easy install, high speed, wireless bluetooth, hands free, carrying case, aluminum alloy";

const kind = (
  name: string,
  place: string,
  attributes: string,
  options: Kind["options"],
  price: Kind["price"],
): Kind => ({ name, place, attributes: attributes.split(", "), options, price });

const worn = { color: COLORS, size: SIZES };
const shoes = { color: COLORS.slice(0, 5), size: SHOE_SIZES };
const packs = {
  flavor: ["original", "sea salt", "dark chocolate", "lemon ginger"],
  size: ["pack of 1", "pack of 6", "pack of 12"],
};
const furniture = { color: ["walnut", "white oak", "espresso", "slate"], size: ["24 inch", "36 inch", "48 inch"] };
const bottles = { scent: ["lavender", "citrus", "vanilla", "unscented"], size: ["4 ounce", "8 ounce", "16 ounce"] };
const devices = { color: ["black", "white", "silver"], style: ["single", "2 pack", "bundle"] };

const KINDS: readonly Kind[] = [
  kind("men's dress shirts", "Clothing › Men › Shirts › Dress Shirts", CLOTHES, worn, [15, 60]),
  kind("men's polo shirts", "Clothing › Men › Shirts › Polos", CLOTHES, worn, [12, 45]),
  kind("women's blouses", "Clothing › Women › Tops › Blouses", CLOTHES, worn, [14, 55]),
  kind("women's cardigans", "Clothing › Women › Sweaters › Cardigans", CLOTHES, worn, [20, 80]),
  kind("kids' pajamas", "Clothing › Children › Sleepwear › Pajamas", CLOTHES, worn, [12, 40]),
  kind("running shoes", "Shoes › Sport › Running › Road", SHOES, shoes, [35, 140]),
  kind("hiking boots", "Shoes › Outdoor › Hiking › Boots", SHOES, shoes, [50, 190]),
  kind("ballet flats", "Shoes › Women › Flats › Ballet", SHOES, shoes, [18, 70]),
  kind("house slippers", "Shoes › Home › Slippers › Indoor", SHOES, shoes, [10, 40]),
  kind("protein bars", "Grocery › Snacks › Bars › Protein", FOOD, packs, [6, 38]),
  kind("trail mix", "Grocery › Snacks › Nuts › Mixes", FOOD, packs, [7, 42]),
  kind("herbal tea", "Grocery › Beverages › Tea › Herbal", FOOD, packs, [5, 30]),
  kind("pancake mix", "Grocery › Baking › Mixes › Pancakes", FOOD, packs, [5, 28]),
  kind("coffee tables", "Home › Furniture › Tables › Coffee", HOME, furniture, [60, 320]),
  kind("bookshelves", "Home › Furniture › Storage › Shelves", HOME, furniture, [45, 260]),
  kind("bar stools", "Home › Furniture › Seating › Stools", HOME, furniture, [40, 210]),
  kind("night stands", "Home › Furniture › Bedroom › Stands", HOME, furniture, [35, 180]),
  kind("hand creams", "Beauty › Skin › Hands › Creams", BEAUTY, bottles, [6, 34]),
  kind("shampoo", "Beauty › Hair › Wash › Shampoo", BEAUTY, bottles, [7, 36]),
  kind("face serums", "Beauty › Skin › Face › Serums", BEAUTY, bottles, [9, 64]),
  kind("body lotions", "Beauty › Skin › Body › Lotions", BEAUTY, bottles, [6, 38]),
  kind("wall chargers", "Electronics › Power › Chargers › Wall", GADGET, devices, [9, 55]),
  kind("over ear headphones", "Electronics › Audio › Headphones › Over Ear", GADGET, devices, [25, 290]),
  kind("phone tripods", "Electronics › Photo › Supports › Tripods", GADGET, devices, [12, 90]),
];

const FIRST = "Al Bel Cor Dun El Fen Gil Hav Il Jor Kes Lor Mar Nor Or Per".split(" ");
const LAST = "ado brook cair dale ena field gate holm ini kind lund mere nova ridge".split(" ");
const TONES = ["Everyday", "Premium", "Modern", "Vintage", "Essential", "Signature", "Cozy", "Urban"];

/** @param count  number of products, of all kinds in turn. */
export function madeUpProducts(count: number, seed: number): Product[] {
  const random = new Pcg64(seed);
  return Array.from({ length: count }, (_, number) => madeUp(KINDS[number % KINDS.length]!, number, random));
}

function madeUp(kind: Kind, number: number, random: Pcg64): Product {
  const one = <T>(items: readonly T[]): T => items[random.integers(items.length)]!;
  const some = <T>(items: readonly T[], least: number, most: number): T[] => {
    const count = Math.min(items.length, least + random.integers(most - least + 1));
    const chosen = new Set<T>();
    while (chosen.size < count) chosen.add(one(items));
    // The chosen items keep the order of the list.
    return items.filter((item) => chosen.has(item));
  };
  const attributes = some(kind.attributes, 4, 6);
  const wanted = some(attributes, 2, 3);
  const brand = `${one(FIRST)}${one(LAST)}`;
  const tone = one(TONES);
  const [low, high] = kind.price;
  const price = Math.round((low + (high - low) * random.random()) * 100) / 100;
  const shown = attributes.map((attribute) => capitalized(attribute));
  return {
    asin: `MU${(number * 1_000_003).toString(36).toUpperCase().padStart(8, "0").slice(-8)}`,
    title: `${brand} ${tone} ${capitalized(kind.name)}, ${shown.slice(0, 3).join(", ")}`,
    description: `${tone} ${kind.name} by ${brand}. Made to be ${attributes.slice(0, 2).join(" and ")}.`,
    bullets: shown.map((attribute) => `${attribute}: what ${brand} is known for`),
    price,
    priceTag: `$${pythonFloat(price)}`,
    options: new Map(Object.entries(kind.options).map(([name, values]) => [name, some(values, 2, 4)])),
    attributes,
    query: kind.name,
    productCategory: kind.place,
    category: kind.place.split(" › ")[0]!.toLowerCase(),
    requests: [{ text: `Find me ${wanted.join(", ")} ${kind.name}`, attributes: wanted, options: null }],
  };
}

function capitalized(words: string): string {
  return words.replaceAll(/(^| )(\w)/g, (_, space: string, letter: string) => space + letter.toUpperCase());
}
