/** The WebShop tags. Source: RAGEN config/envs.yaml. */
import { join } from "node:path";
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { missingFile } from "../data/rows.ts";
import { splitOfSeed } from "../data/split.ts";
import { defineTag, type Parts, plainWording, type TagSource } from "../tag.ts";
import { Catalog } from "./catalog.ts";
import { readShop, type ShopFiles } from "./files.ts";
import { ACTIONS_HEADING, ADVICE, JOINED_ADVICE, WebShopGame, webShopRules } from "./game.ts";
import { madeUpProducts } from "./made-up.ts";
import { bestPurchase, expertShopper, randomShopper, shopScorer } from "./players.ts";

const WebShopConfig = z.strictObject({
  /** Folder with WebShop's files (items_shuffle_1000.json and others); null generates a catalog. */
  dataPath: z.string().min(1).nullable().default(null),
  /** small: WebShop's files of 1,000 products. full: the files of all products. */
  dataset: z.enum(["small", "full"]).default("small"),
  /**
   * With files: the maximum number of products to read; null reads all (the full files take gigabytes). Without files: the number of products
   * to generate; null generates 1,000.
   */
  productsMax: z.int().min(24).nullable().default(1000),
  /** Use the requests written by people (items_human_ins.json) instead of the requests in items_ins_v2*.json. */
  humanGoals: z.boolean().default(false),
  ...webShopRules,
  /** `seed`: layout seeds below 10,000 play validation goals, and other seeds training goals. */
  split: z.enum(["seed", "train", "validation", "test", "all"]).default("seed"),
  /** Seed of the generated catalog. */
  catalogSeed: z.uint32().default(0),
});
type WebShopConfig = z.infer<typeof WebShopConfig>;

const INSTRUCTION =
  "You are browsing an online shop. Based on the instruction, buy a product that close to the production description. You need to search, read the search results, pick a product, choose the size and color and buy. You should only choose action from the available actions list provided later.  Example process: I need a gingko light and 20x20 pillow cover that is hand painted. First search[gingko light 20x20 pillow cover hand painted], answer format: <answer>search[blanket with fleece throw]</answer>. Valid answer is search[<keywords>] or click[<clickable>].";
// The hyphen is RAGEN's: U+2011.
const INSTRUCTION_FULL = "You are an expert autonomous agent operating in the WebShop e\u2011commerce environment.";

const DOWNLOAD =
  "download WebShop's data (by WebShop's setup.sh, https://github.com/princeton-nlp/WebShop) and set env.options.dataPath to the folder of the data";
const HOME = `${DOWNLOAD}, or to null for a generated catalog`;

/** Number of generated products if productsMax is null. */
const GENERATED_PRODUCTS = 1000;

const cache = cached<Catalog>(2);

function filesOf({ dataset, humanGoals }: WebShopConfig, folder: string): ShopFiles {
  const suffix = dataset === "small" ? "_1000" : "";
  return {
    products: join(folder, `items_shuffle${suffix}.json`),
    attributes: join(folder, `items_ins_v2${suffix}.json`),
    people: humanGoals ? join(folder, "items_human_ins.json") : null,
  };
}

function missing(config: WebShopConfig): string | null {
  if (config.dataPath === null) {
    return config.humanGoals
      ? `WebShop: a generated catalog has no humanGoals; set env.options.humanGoals to false, or ${DOWNLOAD}`
      : null;
  }
  const { products, attributes, people } = filesOf(config, config.dataPath);
  const wanted = [products, attributes, ...(people === null ? [] : [people])];
  return wanted.map((path) => missingFile(path, "WebShop", HOME)).find((lack) => lack !== null) ?? null;
}

function catalogOf(config: WebShopConfig): Catalog {
  const { dataPath, dataset, productsMax, humanGoals, catalogSeed } = config;
  return cache(JSON.stringify({ dataPath, dataset, productsMax, humanGoals, catalogSeed }), () => {
    if (dataPath === null) return new Catalog(madeUpProducts(productsMax ?? GENERATED_PRODUCTS, catalogSeed));
    return new Catalog(readShop(filesOf(config, dataPath), productsMax));
  });
}

function parts(config: WebShopConfig, instruction: string): Parts {
  const { split } = config;
  return {
    wording: plainWording(instruction, null, false),
    missing: () => missing(config),
    open({ layout }) {
      const catalog = catalogOf(config);
      const goal = catalog.goalOfSeed(split === "test" ? split : splitOfSeed(split, layout), layout);
      return new WebShopGame(catalog, goal, config);
    },
    brief,
    random: randomShopper,
    expert: expertShopper,
    reasoning: shopScorer,
    best: bestPurchase,
  };
}

/** The observation without its constant parts: the advice and the heading of the actions. */
function brief(observation: string): string {
  return observation.replace(ADVICE, "").replace(JOINED_ADVICE, "").replace(ACTIONS_HEADING, "");
}

const webShop = (tag: string, instruction: string, actionsMax: number, defaults: Partial<WebShopConfig>): TagSource =>
  defineTag({
    tag,
    type: "webshop",
    schema: WebShopConfig,
    defaults,
    compatDefaults: (version): Partial<WebShopConfig> =>
      version === "ragen-v1" ? { joinedLines: true, literalValid: true } : { rewardForm: "perfect" },
    actionsMax,
    replyWordsHint: 200,
    parts: (config) => parts(config, instruction),
  });

export const webShopTags: readonly TagSource[] = [
  webShop("WebShop", INSTRUCTION, 9, {}),
  webShop("WebShopFull", INSTRUCTION_FULL, 15, { dataset: "full", productsMax: null }),
];
