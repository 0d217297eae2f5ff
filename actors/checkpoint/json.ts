/** What JSON gives back as it was, and what it would change without a word. */

/**
 * JSON.stringify turns NaN into null, drops undefined, and makes objects of typed arrays; read back, they would be something
 * else.
 *
 * @throws {TypeError} naming the first value that would not come back.
 */
export function checkJson(value: unknown, at: string): void {
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
