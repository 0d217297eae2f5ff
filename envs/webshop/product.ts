/** Types of products and goals. Source: WebShop web_agent_site/engine. */

export interface Product {
  /** At most 10 characters, upper case. */
  readonly asin: string;
  readonly title: string;
  readonly description: string;
  readonly bullets: readonly string[];
  /** As shown: "$10.99", "$10.99 to $20.5". */
  readonly priceTag: string;
  /** Dollars; of a price range, one price in it. */
  readonly price: number;
  /** Values by name, in lower case and shown order. */
  readonly options: ReadonlyMap<string, readonly string[]>;
  readonly attributes: readonly string[];
  /** The search that found the product when the catalogue was collected. */
  readonly query: string;
  /** "A › B › C". */
  readonly productCategory: string;
  readonly category: string;
  /** The requests for this product. */
  readonly requests: readonly ShopRequest[];
}

/** A request for a product. */
export interface ShopRequest {
  readonly text: string;
  readonly attributes: readonly string[];
  /** The wanted values; null if every combination of the product's options makes a goal. */
  readonly options: readonly string[] | null;
}

export interface Goal {
  readonly asin: string;
  readonly title: string;
  readonly query: string;
  readonly productCategory: string;
  /** The request in words. */
  readonly instruction: string;
  readonly attributes: readonly string[];
  /** Values without names if a person wrote the request. */
  readonly options: readonly (string | readonly [name: string, value: string])[];
  /** Dollars; null without a limit. */
  readonly priceMax: number | null;
}
