/** Values that JSON gives back as they were. */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/**
 * JSON.stringify turns NaN into null, drops undefined, and makes objects of typed arrays; read back, they would be something else.
 *
 * @throws {TypeError} naming the first value that would not come back.
 */
export function checkJson(value: unknown, at: string): asserts value is Json {
  if (value === null || typeof value === "boolean" || typeof value === "string") return;
  if (typeof value === "number" && Number.isFinite(value)) return;
  if (Array.isArray(value)) {
    value.forEach((item, i) => {
      checkJson(item, `${at}[${i}]`);
    });
    return;
  }
  if (typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    for (const [key, item] of Object.entries(value)) checkJson(item, `${at}.${key}`);
    return;
  }
  const found = typeof value === "object" ? value.constructor?.name : String(value);
  throw new TypeError(`${at} cannot be saved as JSON: it is ${found}`);
}
