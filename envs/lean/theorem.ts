/** Parses a theorem of a data set and writes its proofs as Lean code. Source: RAGEN-2 ragen/env/lean/env.py. */

export interface Theorem {
  /** May be empty. */
  readonly imports: string;
  /** The other lines before the statement; may be empty. */
  readonly preamble: string;
  /** The code from the first line that begins with a word of `BEGINS`. */
  readonly statement: string;
  /** The statement in words; may be empty. */
  readonly informal: string;
}

const BEGINS = /^(?:theorem|lemma|def|example|instance)/;

/** @param code  imports, preamble and statement in one text. */
export function readTheorem(code: string, informal: string): Theorem {
  const [imports, preamble, statement]: [string[], string[], string[]] = [[], [], []];
  for (const line of linesOf(code)) {
    const text = line.trim();
    if (statement.length > 0 || BEGINS.test(text)) statement.push(line);
    else if (text.startsWith("import")) imports.push(line);
    else preamble.push(line);
  }
  const block = (lines: readonly string[]) => lines.join("\n").trim();
  return {
    imports: block(imports),
    preamble: block(preamble),
    statement: block(statement),
    informal: informal.trim(),
  };
}

/** The whole Lean code: imports, preamble, statement, then each tactic as an indented line. */
export function proofCode(
  { imports, preamble, statement }: Theorem,
  defaultImports: string,
  tactics: readonly string[],
): string {
  const lines: string[] = [];
  const header = imports === "" ? defaultImports.trim() : imports;
  for (const part of [header, preamble]) if (part !== "") lines.push(...linesOf(part), "");
  if (statement !== "") lines.push(...linesOf(statement));
  lines.push(...tactics.filter((tactic) => tactic.trim() !== "").map((tactic) => `  ${tactic}`));
  const code = lines.join("\n");
  return code.endsWith("\n") ? code : `${code}\n`;
}

const SEPARATORS = "\\x1c-\\x1e";
const LINE_END = new RegExp(`\\r\\n|[\\n\\r\\v\\f${SEPARATORS}\\x85\\u2028\\u2029]`);

/** Python's `str.splitlines`. */
export function linesOf(text: string): string[] {
  const lines = text.split(LINE_END);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
