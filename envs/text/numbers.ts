/** Writes numbers as Python and RAGEN's prompts write them, and replaces Unicode digits in a text by ASCII digits. */

/** Python's `str(float)`: the shortest text that reads back as the same number, always with a point or an exponent. @throws {RangeError} if the value is not finite */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`a number must be finite, got ${value}`);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    const [digits, exponent] = value.toExponential().split("e");
    const power = Number(exponent);
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  if (Object.is(value, -0)) return "-0.0";
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** The number, rounded to four decimals and without trailing zeros. */
export function plainNumber(value: number): string {
  return String(Math.round(value * 1e4) / 1e4);
}

/** Python's `format(value, f".{digits}f")`: like `toFixed`, but ties round to the even digit. @param digits  0 to 10 */
export function pythonFixed(value: number, digits: number): string {
  if (value < 0 || Object.is(value, -0)) return `-${pythonFixed(-value, digits)}`;
  const scaled = value * 10 ** digits;
  const below = Math.floor(scaled);
  // Only a value with at most `digits + 1` binary digits after the point can lie exactly halfway between two results. For such a value
  // `scaled` is exact.
  const tie = Number.isInteger(value * 2 ** (digits + 1)) && scaled - below === 0.5;
  return tie ? ((below % 2 === 0 ? below : below + 1) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

/** Replaces every Unicode decimal digit, which Python's `\d` matches and `int` reads, by its ASCII digit. */
export function asciiDigits(text: string): string {
  return text.replaceAll(/\p{Nd}/gu, (digit) => {
    // Unicode lists decimal digits in runs of ten, each from 0 to 9.
    let before = 0;
    while (/\p{Nd}/u.test(String.fromCodePoint(digit.codePointAt(0)! - before - 1))) before++;
    return String(before % 10);
  });
}
