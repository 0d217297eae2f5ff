/**
 * A visit to the shop: the open page, its texts and its clickable labels. Knows no rewards.
 *
 * - Pages show the texts of WebShop's templates in order; an observation joins them with [SEP].
 * - As in WebShop, a search works on every page.
 *
 * Source: WebShop web_agent_site/templates, envs/web_agent_text_env.py (SimServer.receive).
 */
import type { Product } from "./product.ts";

/** Products on a page of results. */
const PAGE_PRODUCTS = 10;

const SUB_PAGES = ["Description", "Features", "Reviews", "Attributes"] as const;
type SubPage = (typeof SUB_PAGES)[number];

type Page =
  | { readonly kind: "search" }
  | { readonly kind: "results" }
  | { readonly kind: "item" }
  | { readonly kind: "sub"; readonly shows: SubPage };

/** The target of a click. */
type Click =
  | { readonly kind: "button"; readonly name: string }
  | { readonly kind: "product"; readonly product: Product }
  | { readonly kind: "option"; readonly name: string; readonly value: string };

export interface Bought {
  readonly product: Product;
  /** The chosen values by name. */
  readonly options: ReadonlyMap<string, string>;
}

/** The product search. */
export interface ProductSearch {
  /** Best first. */
  search(query: string): readonly Product[];
}

export class Visit {
  readonly #search: ProductSearch;
  readonly #instruction: string;
  readonly #showAttributes: boolean;
  #page: Page = { kind: "search" };
  #results: readonly Product[] = [];
  #pageNumber = 1;
  #product: Product | null = null;
  #options = new Map<string, string>();
  #clicks: ReadonlyMap<string, Click>;

  constructor(search: ProductSearch, instruction: string, showAttributes: boolean) {
    this.#search = search;
    this.#instruction = instruction;
    this.#showAttributes = showAttributes;
    this.#clicks = this.#clickable();
  }

  get hasSearchBar(): boolean {
    return this.#page.kind === "search";
  }

  /** In lower case and page order, the search button included. */
  get labels(): readonly string[] {
    return [...this.#clicks.keys()];
  }

  /** The product whose page or sub-page is open. */
  get product(): Product | null {
    return this.#page.kind === "item" || this.#page.kind === "sub" ? this.#product : null;
  }

  /** The chosen values by name. */
  get options(): ReadonlyMap<string, string> {
    return this.#options;
  }

  /** The products on the open page of results. */
  get shown(): readonly Product[] {
    if (this.#page.kind !== "results") return [];
    return this.#results.slice((this.#pageNumber - 1) * PAGE_PRODUCTS, this.#pageNumber * PAGE_PRODUCTS);
  }

  observation(): string {
    return this.#texts()
      .filter((text) => text !== "")
      .map((text) => text.trim())
      .join(" [SEP] ");
  }

  search(query: string): void {
    this.#results = this.#search.search(query);
    this.#pageNumber = 1;
    this.#openResults();
  }

  /** @param label  one of `labels`, not "search". @returns the purchase, if the click was one. */
  click(label: string): Bought | null {
    const click = this.#clicks.get(label);
    if (click === undefined || label === "search") throw new RangeError(`this page has no label ${label}`);
    const bought = this.#follow(click);
    this.#clicks = this.#clickable();
    return bought;
  }

  #follow(click: Click): Bought | null {
    switch (click.kind) {
      case "product":
        this.#product = click.product;
        this.#page = { kind: "item" };
        return null;
      case "option":
        this.#options.set(click.name, click.value);
        this.#page = { kind: "item" };
        return null;
      case "button":
        return this.#press(click.name);
      default:
        return click satisfies never;
    }
  }

  #press(name: string): Bought | null {
    if (name === "Buy Now") return { product: this.#product!, options: this.#options };
    if (name === "Back to Search") {
      this.#page = { kind: "search" };
      this.#leave();
    } else if (name === "Next >") {
      this.#pageNumber++;
      this.#openResults();
    } else if (name === "< Prev") {
      if (this.#page.kind === "sub") this.#page = { kind: "item" };
      else {
        if (this.#page.kind === "results") this.#pageNumber--;
        this.#openResults();
      }
    } else {
      this.#page = { kind: "sub", shows: name as SubPage };
    }
    return null;
  }

  #openResults(): void {
    this.#page = { kind: "results" };
    this.#leave();
    this.#clicks = this.#clickable();
  }

  #leave(): void {
    this.#product = null;
    this.#options = new Map();
  }

  #buttons(): string[] {
    switch (this.#page.kind) {
      case "search":
        return ["Search"];
      case "results":
        return ["Back to Search", ...(this.#pageNumber > 1 ? ["< Prev"] : []), "Next >"];
      case "item":
        return ["Back to Search", "< Prev", ...this.#subPages(), "Buy Now"];
      case "sub":
        return ["Back to Search", "< Prev"];
      default:
        return this.#page satisfies never;
    }
  }

  #subPages(): readonly SubPage[] {
    return this.#showAttributes ? SUB_PAGES : SUB_PAGES.slice(0, 3);
  }

  #clickable(): Map<string, Click> {
    const clicks = new Map<string, Click>();
    for (const name of this.#buttons()) clicks.set(name.toLowerCase(), { kind: "button", name });
    for (const product of this.shown) clicks.set(product.asin.toLowerCase(), { kind: "product", product });
    if (this.#page.kind !== "item") return clicks;
    for (const [name, values] of this.#product!.options) {
      for (const value of values) {
        // In WebShop a button hides an option of the same name.
        if (clicks.get(value)?.kind !== "button") clicks.set(value, { kind: "option", name, value });
      }
    }
    return clicks;
  }

  #texts(): string[] {
    const instruction = ["Instruction:", this.#instruction];
    const page = this.#page;
    switch (page.kind) {
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
        return [...instruction, "Back to Search", "< Prev", ...choices, ...facts, ...this.#subPages(), "Buy Now"];
      }
      case "sub":
        return [...instruction, "Back to Search", "< Prev", ...this.#subTexts(page.shows)];
      default:
        return page satisfies never;
    }
  }

  #subTexts(shows: SubPage): readonly string[] {
    const { description, bullets, attributes, category, query, productCategory } = this.#product!;
    switch (shows) {
      case "Description":
        return [description];
      case "Features":
        // WebShop's template puts a space before each, so an empty one is an empty field.
        return bullets.map((bullet) => ` ${bullet}`);
      case "Reviews":
        // WebShop loads no reviews.
        return [];
      case "Attributes":
        return [...attributes.map((attribute) => ` ${attribute}`), category, query, productCategory];
      default:
        return shows satisfies never;
    }
  }
}
