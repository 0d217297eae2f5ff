/** Types of products and goals. Source: WebShop web_agent_site/engine. */

export interface Product {
  /** At most 10 characters, upper case. */
  readonly asin: string;
  readonly title: string;
  readonly description: string;
  readonly bullets: readonly string[];
  /** The price as the page shows it: "$10.99", "$10.99 to $20.5". */
  readonly priceTag: string;
  /** Dollars. A product with a price range has one price in this range. */
  readonly price: number;
  /** The values of each option by its name. Values are in lower case, in the order in which the page shows them. */
  readonly options: ReadonlyMap<string, readonly string[]>;
  readonly attributes: readonly string[];
  /** The text of the search that put the product into the catalog. */
  readonly query: string;
  /** The categories of the product: "A › B › C". */
  readonly productCategory: string;
  readonly category: string;
  readonly requests: readonly ShopRequest[];
}

export interface ShopRequest {
  readonly text: string;
  readonly attributes: readonly string[];
  /** The wanted values; null if every combination of the product's options makes a goal. */
  readonly options: readonly string[] | null;
}

/** A purchase: the product and the chosen values by name. */
export interface Purchase {
  readonly product: Product;
  readonly options: ReadonlyMap<string, string>;
}

export interface Goal extends Pick<Product, "asin" | "title" | "query" | "productCategory"> {
  /** The request in words. */
  readonly instruction: string;
  readonly attributes: readonly string[];
  /** Wanted values: without names if a person wrote the request, otherwise with the names of the options. */
  readonly options: readonly (string | readonly [name: string, value: string])[];
  /** Dollars; null if the price has no limit. */
  readonly priceMax: number | null;
}
