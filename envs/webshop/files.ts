/**
 * Reads WebShop's files as products: items_shuffle*.json (products), items_ins_v2*.json (attributes and requests) and
 * items_human_ins.json (requests written by people). Knows no search and no goals.
 *
 * - As in WebShop, the reader skips duplicates and products without a valid id, and a product without a price costs 100 dollars.
 * - For a price range, the reader draws one price in the range, with a fixed seed. WebShop's price differs from process to process.
 *
 * Source: WebShop web_agent_site/engine/engine.py (load_products, generate_product_prices).
 */
import { z } from "zod";
import { jsonElements, jsonEntries } from "../data/json-parts.ts";
import { DataError } from "../data/rows.ts";
import { PythonRandom } from "../rng/mt19937.ts";
import { pythonFloat } from "../text/numbers.ts";
import type { Product, ShopRequest } from "./product.ts";

export interface ShopFiles {
  readonly products: string;
  readonly attributes: string;
  /** The file of requests that people wrote; null: the reader takes the requests in the file `attributes`. */
  readonly people: string | null;
}

const Text = z.string().nullish();
const Item = z.object({
  asin: z.string(),
  name: z.string(),
  full_description: Text,
  small_description: z.union([z.array(z.string()), z.string()]).nullish(),
  pricing: Text,
  customization_options: z
    .union([z.record(z.string(), z.array(z.object({ value: z.string() })).nullable()), z.literal("")])
    .nullish(),
  category: z.string(),
  query: z.string(),
  product_category: z.string(),
});
type Item = z.infer<typeof Item>;

const Attributes = z.object({
  attributes: z.array(z.string()).optional(),
  instruction: Text,
  instruction_attributes: z.array(z.string()).nullish(),
});

const PeopleRequest = z.object({
  instruction: z.string(),
  instruction_attributes: z.array(z.string()),
  instruction_options: z.array(z.string()),
});

/** WebShop's placeholder for a product without attributes. */
const NO_ATTRIBUTES = ["DUMMY_ATTR"];
const PRICE_SEED = 233;
const ASIN_LENGTH_MAX = 10;

/**
 * @param productsMax  maximum number of products to read; null reads all products. @throws {DataError} naming the file and what is wrong in
 * it.
 */
export function readShop(files: ShopFiles, productsMax: number | null): Product[] {
  const items = new Map<string, Item>();
  let count = 0;
  for (const raw of within(files.products, jsonElements(files.products))) {
    if (count++ === productsMax) break;
    const item = parsed(Item, raw, `${files.products}, product ${count}`);
    if (item.asin === "nan" || item.asin.length > ASIN_LENGTH_MAX || items.has(item.asin)) continue;
    items.set(item.asin, item);
  }
  const attributes = new Map<string, z.infer<typeof Attributes>>();
  for (const [asin, raw] of within(files.attributes, jsonEntries(files.attributes))) {
    if (items.has(asin)) attributes.set(asin, parsed(Attributes, raw, `${files.attributes}, ${asin}`));
  }
  const people = files.people === null ? null : readPeople(files.people, items);
  const random = new PythonRandom(PRICE_SEED);
  return [...items.values()].map((item) => {
    const known = attributes.get(item.asin);
    const requests = people === null ? ownRequests(known) : (people.get(item.asin) ?? []);
    return product(item, known?.attributes ?? NO_ATTRIBUTES, requests, random);
  });
}

function readPeople(path: string, items: ReadonlyMap<string, Item>): Map<string, ShopRequest[]> {
  const requests = new Map<string, ShopRequest[]>();
  for (const [asin, raw] of within(path, jsonEntries(path))) {
    if (!items.has(asin)) continue;
    const written = parsed(z.array(PeopleRequest), raw, `${path}, ${asin}`);
    // As in WebShop, a request without attributes is no goal.
    const usable = written.filter(({ instruction_attributes: wanted }) => wanted.length > 0);
    requests.set(
      asin,
      usable.map(({ instruction, instruction_attributes: wanted, instruction_options: options }) => ({
        text: instruction.replace(/^\.+|\.+$/g, ""),
        attributes: wanted,
        options,
      })),
    );
  }
  return requests;
}

function ownRequests(known: z.infer<typeof Attributes> | undefined): ShopRequest[] {
  const { instruction, instruction_attributes: attributes } = known ?? {};
  if (instruction == null || attributes == null || attributes.length === 0) return [];
  return [{ text: instruction, attributes, options: null }];
}

function product(
  item: Item,
  attributes: readonly string[],
  requests: readonly ShopRequest[],
  random: PythonRandom,
): Product {
  const { small_description: small } = item;
  return {
    asin: item.asin.toUpperCase(),
    title: item.name,
    description: item.full_description ?? "",
    bullets: Array.isArray(small) ? small : [small ?? ""],
    ...priced(item, random),
    options: options(item),
    attributes,
    query: item.query.toLowerCase().trim(),
    productCategory: item.product_category,
    category: item.category,
    requests,
  };
}

function priced({ asin, pricing }: Item, random: PythonRandom): Pick<Product, "price" | "priceTag"> {
  if (pricing == null || pricing === "") return { price: 100, priceTag: "$100.0" };
  const prices = pricing
    .split("$")
    .slice(1, 3)
    .map((text) => Number(text.replaceAll(/[^\d.]/g, "") || Number.NaN));
  const [low, high] = prices;
  if (low === undefined || prices.some(Number.isNaN))
    throw new DataError(`product ${asin} has the price ${JSON.stringify(pricing)}, which is not a price`);
  if (high === undefined) return { price: low, priceTag: `$${pythonFloat(low)}` };
  return { price: low + (high - low) * random.random(), priceTag: `$${pythonFloat(low)} to $${pythonFloat(high)}` };
}

function options({ customization_options: custom }: Item): Map<string, string[]> {
  const named = new Map<string, string[]>();
  for (const [name, contents] of Object.entries(custom || {})) {
    if (contents === null) continue;
    named.set(
      name.toLowerCase(),
      contents.map(({ value }) => value.trim().replaceAll("/", " | ").toLowerCase()),
    );
  }
  return named;
}

function parsed<S extends z.ZodType>(schema: S, raw: unknown, where: string): z.infer<S> {
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new DataError(`${where}: ${issue!.path.join(".") || "it"}: ${issue!.message}`);
}

/** Adds the file's name to errors of reading. */
function* within<T>(path: string, items: Iterable<T>): Generator<T> {
  try {
    yield* items;
  } catch (error) {
    if (error instanceof DataError) throw error;
    throw new DataError(`${path}: ${error instanceof Error ? error.message : error}`, { cause: error });
  }
}
