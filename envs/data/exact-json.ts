/** JSON whose integers keep all of their digits: an integer that no number holds is a raw JSON value, which `JSON.stringify` writes as it was. */

// TypeScript's lib lacks them. Source: tc39.es/proposal-json-parse-with-source.
const { rawJSON, isRawJSON } = JSON as typeof JSON & {
  rawJSON(text: string): object;
  isRawJSON(value: unknown): value is { readonly rawJSON: string };
};

/** @throws {SyntaxError} as `JSON.parse` */
export function exactJson(text: string): unknown {
  // A reviver takes many times as long.
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value: unknown, { source = "" }: { readonly source?: string } = {}) => {
    const isRounded = typeof value === "number" && /^-?\d+$/.test(source) && String(value) !== source;
    return isRounded ? rawJSON(source) : value;
  });
}

/** The digits of an integer that no number holds; null for any other value. */
export const digitsOf = (value: unknown): string | null => (isRawJSON(value) ? value.rawJSON : null);
