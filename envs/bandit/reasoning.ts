/**
 * Scores thoughts about a bandit: compares what they say of an arm with its true rewards, and the choice that they announce with
 * the arm that is pulled. "Dragon pays more on average, so I pull Dragon" has two claims.
 */
import { clausesOf, isDenied, isSupposed, type ReasoningScorer, shareOf } from "../analysis/reasoning.ts";

export interface Arms {
  /** True for the arm that pays more on average. */
  readonly paysMore: (name: string) => boolean;
  /** True for the arm whose reward is random. */
  readonly isRisky: (name: string) => boolean;
}

const CHOICE = /\b(?:pull|choose|choosing|pick|select|take|try|go with|going with)\s+(?:the\s+)?(?:arm\s+)?$/i;

/** What a word says of the arm that is named before it. */
const WORDS: readonly (readonly [word: RegExp, claim: keyof Arms, holds: boolean])[] = [
  [/\b(?:higher|more|better|best|larger|greater)\b/i, "paysMore", true],
  [/\b(?:lower|less|worse|worst|smaller)\b/i, "paysMore", false],
  [/\b(?:risky|riskier|volatile|uncertain)\b/i, "isRisky", true],
  [/\b(?:safe|safer|stable|steady|certain|reliable)\b/i, "isRisky", false],
];

/** The two names in shown order; none after a pull. */
export const armsIn = (observation: string): string[] =>
  /^1\. There are 2 arms, named (.+) and (.+)$/m.exec(observation)?.slice(1) ?? [];

export const banditScorer =
  (arms: Arms): ReasoningScorer =>
  ({ thought, observation, actions }) => {
    const names = armsIn(observation);
    const claims = clausesOf(thought).flatMap((clause) => {
      if (isSupposed(clause)) return [];
      const denied = isDenied(clause);
      const found = names
        .flatMap((name) =>
          [...clause.matchAll(new RegExp(`\\b${RegExp.escape(name)}\\b`, "gi"))].map((at) => ({ name, at })),
        )
        .sort((a, b) => a.at.index - b.at.index);
      return found.flatMap(({ name, at }, i) => {
        const chosen = CHOICE.test(clause.slice(0, at.index)) && !denied;
        const until = found[i + 1]?.at.index ?? clause.length;
        const said = WORDS.find(([word]) => word.test(clause.slice(at.index + name.length, until)));
        return [
          ...(chosen ? [actions[0]!.toLowerCase() === name.toLowerCase()] : []),
          ...(said === undefined ? [] : [(arms[said[1]](name) === said[2]) !== denied]),
        ];
      });
    });
    return shareOf(claims);
  };
