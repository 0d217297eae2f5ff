/**
 * The text functions of WebShop's libraries: Lucene's English analysis, thefuzz's similarity, spaCy's nouns.
 *
 * Nouns come from wink instead of spaCy. Both label words with universal parts of speech, but their labels differ for some words.
 */
import { createRequire } from "node:module";
import { stemmer } from "stemmer";
import type { WinkMethods } from "wink-nlp";

/**
 * Words by UAX #29: a point or an apostrophe joins letters, a comma joins digits, and each Chinese character is a word.
 */
const WORD =
  /[\p{Script=Han}\p{Script=Hiragana}]|(?:(?![\p{Script=Han}\p{Script=Hiragana}])[\p{L}\p{N}\p{M}_]|(?<=\p{L})[.'’·](?=\p{L})|(?<=\p{N})[.,;'’](?=\p{N}))+/gu;

/** Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET. */
const STOP_WORDS = new Set(
  "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with".split(
    " ",
  ),
);

/** Lucene's default English analysis: words without possessives and stop words, with Porter's stemming. */
export function analyzed(text: string): string[] {
  return (text.match(WORD) ?? []).map(termOf).filter((term) => term !== "");
}

/** A cache of terms by word: stemming is slow, and a catalog repeats its words. */
const terms = new Map<string, string>();
const TERMS_MAX = 200_000;

/** The term of a word in the index; empty for a stop word. */
function termOf(word: string): string {
  const known = terms.get(word);
  if (known !== undefined) return known;
  const plain = word.replace(/['’][sS]$/, "").toLowerCase();
  const term = STOP_WORDS.has(plain) ? "" : stemmer(plain);
  if (terms.size >= TERMS_MAX) terms.clear();
  terms.set(word, term);
  return term;
}

/** thefuzz's `token_set_ratio(a, b) > 85`: similar words in any order. */
export function similar(a: string, b: string): boolean {
  const left = words(a);
  const right = words(b);
  if (left.size === 0 || right.size === 0) return false;
  const shared = [...left.intersection(right)].sort();
  const onlyLeft = [...left.difference(right)].sort();
  const onlyRight = [...right.difference(left)].sort();
  if (shared.length > 0 && (onlyLeft.length === 0 || onlyRight.length === 0)) return true;
  const both = shared.join(" ");
  const wholeLeft = [...shared, ...onlyLeft].join(" ");
  const wholeRight = [...shared, ...onlyRight].join(" ");
  const ratios = [similarity(wholeLeft, wholeRight)];
  if (shared.length > 0) ratios.push(similarity(both, wholeLeft), similarity(both, wholeRight));
  // thefuzz rounds to whole percents before it compares: 85.5 becomes 86.
  return Math.max(...ratios) >= 0.855;
}

function words(text: string): Set<string> {
  // thefuzz removes only the characters of Latin-1's upper half, and also separates words at underscores.
  // In lower case, thefuzz turns İ into one letter and JavaScript turns İ into two.
  const plain = text.replaceAll(/[\x80-\xff]/g, "").replaceAll("İ", "i");
  return new Set(plain.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
}

/** Twice the length of the longest common subsequence, divided by the sum of both lengths: thefuzz's 1 - (indel distance) / (sum). */
function similarity(left: string, right: string): number {
  // Python counts code points.
  const [a, b] = [[...left], [...right]];
  const row = new Uint32Array(b.length + 1);
  for (const letter of a) {
    let diagonal = 0;
    for (let j = 1; j <= b.length; j++) {
      const above = row[j]!;
      row[j] = letter === b[j - 1] ? diagonal + 1 : Math.max(above, row[j - 1]!);
      diagonal = above;
    }
  }
  return (2 * row[b.length]!) / (a.length + b.length);
}

let loaded: WinkMethods | null = null;

/** Loads wink and its model at the first purchase: they take 30 MB, and every process imports every env. */
function language(): WinkMethods {
  const require = createRequire(import.meta.url);
  loaded ??= require("wink-nlp")(require("wink-eng-lite-web-model"), ["sbd", "pos"]) as WinkMethods;
  return loaded;
}

/** The nouns and names of a title, in order and lower case. */
export function nouns(title: string): string[] {
  const nlp = language();
  const tokens = nlp.readDoc(title).tokens();
  const parts = tokens.out(nlp.its.pos) as string[];
  return (tokens.out() as string[]).filter((_, i) => NOUNS.has(parts[i]!)).map((word) => word.toLowerCase());
}

const NOUNS = new Set(["NOUN", "PROPN"]);
