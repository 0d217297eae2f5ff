/**
 * Finds and scores answers. The score of the expected answer is 1. The score of any other answer is the F1 score of its words, or 0 if the F1
 * score is below the threshold. For the answers yes, no and noanswer, only an exact match scores. Source: RAGEN-2 ragen/env/search/reward.py,
 * which follows the evaluations of SQuAD and HotpotQA.
 */

/** Lower case, no ASCII punctuation, no articles, single spaces. */
export function normalizeAnswer(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[!-/:-@[-`{-~]/g, "")
    .replaceAll(/(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu, " ")
    .split(/\s+/)
    .filter((word) => word !== "")
    .join(" ");
}

export function answerScore(answer: string, expected: string, threshold = 0.3): number {
  const [got, wanted] = [normalizeAnswer(answer), normalizeAnswer(expected)];
  if (got === wanted) return 1;
  const closed = ["yes", "no", "noanswer"];
  if (closed.includes(got) || closed.includes(wanted)) return 0;
  const f1 = wordF1(got.split(" "), wanted.split(" "));
  return f1 >= threshold ? f1 : 0;
}

function wordF1(got: readonly string[], wanted: readonly string[]): number {
  const left = [...wanted];
  let common = 0;
  for (const word of got) {
    const at = left.indexOf(word);
    if (at < 0) continue;
    left.splice(at, 1);
    common++;
  }
  if (common === 0) return 0;
  const precision = common / got.length;
  const recall = common / wanted.length;
  return (2 * precision * recall) / (precision + recall);
}

const BOLD = [/\*\*([^*]+)\*\*/g, /\*([^*]+)\*/g];
const SAID = [
  /(?:the\s+)?(?:correct\s+)?answer\s+is\s*:?\s*([^.!?]+)/i,
  /(?:therefore|thus|so|hence)\s*,?\s*([^.!?]+)/i,
];
const EDGES = /^[^\p{L}\p{N}_]+|[^\p{L}\p{N}_]+$/gu;

/**
 * The answer in a text without the form `finish[answer]`. It is the first of these parts that the text contains: a boxed part; more than 2
 * characters between asterisks; more than 3 characters after "the answer is" or a similar phrase; a sentence of more than 5 characters; the
 * first 100 characters.
 */
export function answerIn(response: string): string {
  const text = response
    .replaceAll(/<think>.*?<\/think>/gs, "")
    .replaceAll(/\s+/g, " ")
    .trim();
  const boxed = /\\boxed\{([^}]+)\}/.exec(text);
  if (boxed !== null) return boxed[1]!.trim();
  for (const pattern of BOLD) {
    const marked = [...text.matchAll(pattern)].map(([, inner]) => inner!.trim());
    const found = marked.find((inner) => inner.length > 2 && /[\p{L}\p{N}_]/u.test(inner));
    if (found !== undefined) return found;
  }
  for (const pattern of SAID) {
    const answer = pattern.exec(text)?.[1]?.trim().replaceAll(EDGES, "") ?? "";
    if (answer.length > 3) return answer;
  }
  const sentence = text.split(/[.!?]+/).find((part) => part.trim().length > 5);
  return sentence?.trim() ?? text.slice(0, 100).trim();
}
