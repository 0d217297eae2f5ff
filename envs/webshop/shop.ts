/**
 * A visit to the shop: the open page, its texts and its clickable labels. Knows no rewards.
 *
 * - Pages show the texts of WebShop's templates in order; an observation joins them with [SEP].
 * - As in WebShop, a search works on every page.
 *
 * Source: WebShop web_agent_site/templates, envs/web_agent_text_env.py (SimServer.receive).
 */
import type { Catalog } from "./catalog.ts";
import type { Product, Purchase } from "./product.ts";

/** Maximum number of products on a page of results. */
const PAGE_PRODUCTS = 10;

const SUB_PAGES = ["Description", "Features", "Reviews", "Attributes"] as const;
type SubPage = (typeof SUB_PAGES)[number];

/** The button of an item's page that ends the visit. */
const BUY = "Buy Now";

type Page = "search" | "results" | "item" | SubPage;

export class Visit {
  readonly #catalog: Pick<Catalog, "search">;
  readonly #instruction: string;
  readonly #subPages: readonly SubPage[];
  #page: Page = "search";
  #results: readonly Product[] = [];
  #pageNumber = 1;
  #product: Product | null = null;
  #options = new Map<string, string>();

  constructor(catalog: Pick<Catalog, "search">, instruction: string, showAttributes: boolean) {
    this.#catalog = catalog;
    this.#instruction = instruction;
    this.#subPages = showAttributes ? SUB_PAGES : SUB_PAGES.slice(0, 3);
  }

  get hasSearchBar(): boolean {
    return this.#page === "search";
  }

  /** The labels in lower case: the buttons, the search button included, then the products, then the values of options. */
  get labels(): readonly string[] {
    return [...this.#clicks().keys()];
  }

  /** The product whose page or sub-page is open. */
  get product(): Product | null {
    return this.#product;
  }

  /** The chosen values by name. */
  get options(): ReadonlyMap<string, string> {
    return this.#options;
  }

  /** The products on the open page of results. */
  get shown(): readonly Product[] {
    if (this.#page !== "results") return [];
    return this.#results.slice((this.#pageNumber - 1) * PAGE_PRODUCTS, this.#pageNumber * PAGE_PRODUCTS);
  }

  observation(): string {
    return this.#texts()
      .filter((text) => text !== "")
      .map((text) => text.trim())
      .join(" [SEP] ");
  }

  search(query: string): void {
    this.#results = this.#catalog.search(query);
    this.#openResults(1);
  }

  /** @param label  one of `labels`, not "search". @returns the purchase; null if the click buys nothing. */
  click(label: string): Purchase | null {
    const follow = this.#clicks().get(label);
    if (follow === undefined || label === "search") throw new RangeError(`this page has no label ${label}`);
    if (label === BUY.toLowerCase()) return { product: this.#product!, options: this.#options };
    follow();
    return null;
  }

  /** What a click on each label does. `click` never follows the entry of `BUY`. */
  #clicks(): Map<string, () => void> {
    const clicks = new Map<string, () => void>();
    for (const name of this.#buttons()) clicks.set(name.toLowerCase(), () => this.#press(name));
    for (const product of this.shown) clicks.set(product.asin.toLowerCase(), () => this.#openItem(product));
    if (this.#page !== "item") return clicks;
    const buttons = new Set(clicks.keys());
    for (const [name, values] of this.#product!.options) {
      for (const value of values) {
        // In WebShop a button takes precedence over an option value with the same label.
        if (!buttons.has(value)) clicks.set(value, () => this.#options.set(name, value));
      }
    }
    return clicks;
  }

  #buttons(): readonly string[] {
    switch (this.#page) {
      case "search":
        return ["Search"];
      case "results":
        return ["Back to Search", ...(this.#pageNumber > 1 ? ["< Prev"] : []), "Next >"];
      case "item":
        return ["Back to Search", "< Prev", ...this.#subPages, BUY];
      default:
        return ["Back to Search", "< Prev"];
    }
  }

  #press(name: string): void {
    if (name === "Back to Search") this.#openWithoutProduct("search");
    else if (name === "Next >") this.#openResults(this.#pageNumber + 1);
    else if (name !== "< Prev") this.#page = name as SubPage;
    else if (this.#page === "results") this.#openResults(this.#pageNumber - 1);
    else if (this.#page === "item") this.#openResults(this.#pageNumber);
    else this.#page = "item";
  }

  #openItem(product: Product): void {
    this.#product = product;
    this.#page = "item";
  }

  #openResults(pageNumber: number): void {
    this.#pageNumber = pageNumber;
    this.#openWithoutProduct("results");
  }

  #openWithoutProduct(page: Page): void {
    this.#page = page;
    this.#product = null;
    this.#options = new Map();
  }

  #texts(): readonly string[] {
    const instruction = ["Instruction:", this.#instruction];
    switch (this.#page) {
      case "search":
        return ["WebShop", ...instruction, "Search"];
      case "results": {
        const found = `Page ${this.#pageNumber} (Total results: ${this.#results.length})`;
        const [back, ...turning] = this.#buttons();
        const listed = this.shown.flatMap(({ asin, title, priceTag }) => [asin, title, priceTag]);
        return [...instruction, back!, found, ...turning, ...listed];
      }
      case "item": {
        const { options, title, priceTag } = this.#product!;
        const choices = [...options].flatMap(([name, values]) => [name, ...values]);
        const facts = [title, `Price: ${priceTag}`, "Rating: N.A."];
        return [...instruction, "Back to Search", "< Prev", ...choices, ...facts, ...this.#subPages, BUY];
      }
      default:
        return [...instruction, "Back to Search", "< Prev", ...this.#subTexts(this.#page)];
    }
  }

  #subTexts(page: SubPage): readonly string[] {
    const { description, bullets, attributes, category, query, productCategory } = this.#product!;
    const texts: Record<SubPage, readonly string[]> = {
      Description: [description],
      // As in WebShop, a space stands before each bullet. So an empty bullet is a field too: `observation` drops only empty texts.
      Features: bullets.map((bullet) => ` ${bullet}`),
      // WebShop loads no reviews.
      Reviews: [],
      Attributes: [...attributes.map((attribute) => ` ${attribute}`), category, query, productCategory],
    };
    return texts[page];
  }
}
