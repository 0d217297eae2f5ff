/**
 * Evaluates arithmetic as Python does: + - * / // % ** unary signs, parentheses, ints and floats. It does not use `eval`,
 * because the text comes from a model.
 */

/** The error of an expression that is not arithmetic or has no finite value. */
export class ArithmeticError extends Error {
  override readonly name = "ArithmeticError";
}

/** Longest accepted expression, in characters. This limit also bounds the depth of nested parentheses. */
const LENGTH_MAX = 1000;

/** @throws {ArithmeticError} that says why the text has no value. */
export function evaluateArithmetic(text: string): number {
  if (text.length > LENGTH_MAX) throw new ArithmeticError(`${text.length} characters (limit ${LENGTH_MAX})`);
  const tokens = tokenize(text);
  let at = 0;

  function primary(): number {
    const token = tokens[at++];
    if (token === "(") {
      const value = sum();
      if (tokens[at++] !== ")") throw new ArithmeticError("a parenthesis is not closed");
      return value;
    }
    if (token === undefined || !/[\d.]/.test(token))
      throw new ArithmeticError(`expected a number, got ${token ?? "the end"}`);
    return Number(token);
  }
  function power(): number {
    const base = primary();
    if (tokens[at] !== "**") return base;
    at++;
    const exponent = signed();
    if (base === 0 && exponent < 0) throw new ArithmeticError("division by zero");
    return base ** exponent;
  }
  function signed(): number {
    if (tokens[at] === "-") {
      at++;
      return -signed();
    }
    if (tokens[at] === "+") {
      at++;
      return signed();
    }
    return power();
  }
  function product(): number {
    let value = signed();
    for (;;) {
      const operator = tokens[at];
      if (operator !== "*" && operator !== "/" && operator !== "//" && operator !== "%") return value;
      at++;
      const right = signed();
      if (operator !== "*" && right === 0) throw new ArithmeticError("division by zero");
      if (operator === "*") value *= right;
      else if (operator === "/") value /= right;
      else if (operator === "//") value = Math.floor(value / right);
      else value -= right * Math.floor(value / right);
    }
  }
  function sum(): number {
    let value = product();
    while (tokens[at] === "+" || tokens[at] === "-") value += tokens[at++] === "+" ? product() : -product();
    return value;
  }

  const value = sum();
  if (at < tokens.length) throw new ArithmeticError(`unexpected ${tokens[at]}`);
  if (!Number.isFinite(value)) throw new ArithmeticError("the result is not a finite number");
  return value;
}

function tokenize(text: string): string[] {
  // Python's tokenizer skips these characters and no other space.
  const line = text.replaceAll(/^[ \t\f\r\n]+|[ \t\f\r\n]+$/g, "");
  if (/[\r\n]/.test(line)) throw new ArithmeticError("an expression is one line");
  const tokens = line.match(/\d+\.\d*|\.\d+|\d+|\*\*|\/\/|[-+*/%()]|[^ \t\f]/gu) ?? [];
  for (const token of tokens) {
    if (!/^(?:[\d.]+|\*\*|\/\/|[-+*/%()])$/.test(token) || token === ".")
      throw new ArithmeticError(`cannot read ${token}`);
    // Python refuses ints with leading zeros.
    if (/^0\d*[1-9]\d*$/.test(token)) throw new ArithmeticError(`${token} has a leading zero`);
  }
  return tokens;
}
