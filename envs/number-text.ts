/** Numbers as prompts print them. */

/** Python's `str` of a float: shortest round trip, always with a point or an exponent. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) throw new RangeError(`a reward must be finite, got ${value}`);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    const [digits, exponent] = value.toExponential().split("e");
    const power = Number(exponent);
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  if (Object.is(value, -0)) return "-0.0";
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

/** Rounded to four decimals, without trailing zeros. */
export function plainNumber(value: number): string {
  return String(Math.round(value * 1e4) / 1e4 + 0);
}
