/**
 * The agent proves a theorem tactic by tactic. Lean checks each tactic after the accepted ones. Knows no server and no file.
 *
 * - The game accepts a tactic if its only Lean errors are unsolved goals and the tactic assumes nothing by `sorry`.
 * - The reward of a step is a sum. One term is for the step itself and one for the accepted or rejected tactic. Further terms are for a
 *   complete proof, for a timeout, and for using up the steps without a proof.
 * - A failure of the server is an error of the env. RAGEN treats the failure as a rejected tactic and penalizes the policy.
 *
 * Source: RAGEN-2 ragen/env/lean/env.py.
 */
import { z } from "zod";
import type { Effect, OutsideGame } from "../env.ts";
import { rejected, type Verdict } from "./kimina.ts";
import { proofCode, type Theorem } from "./theorem.ts";
import { proofText } from "./view.ts";

/** The options of the tag that the game reads. */
export const leanRules = {
  stepsMax: z.int().positive().default(100),
  stepReward: z.number().default(-0.1),
  acceptedReward: z.number().default(1),
  rejectedReward: z.number().default(-1),
  provenReward: z.number().default(10),
  timeoutReward: z.number().default(-1),
  /** Reward added at step `stepsMax` if this step does not complete the proof. Not added if the actions or turns run out earlier. */
  stepsMaxReward: z.number().default(-2),
  /** Imports for a theorem that has no imports of its own. */
  defaultImports: z
    .string()
    .default("import Mathlib\nimport Aesop\nset_option maxHeartbeats 0\nopen BigOperators Real Nat Topology Rat"),
  /** Maximum number of characters shown of each Lean message; 0 shows all. */
  messageCharactersMax: z.int().nonnegative().default(0),
};
type LeanRules = Readonly<z.infer<z.ZodObject<typeof leanRules>>>;

type CheckProof = (code: string, signal: AbortSignal) => Promise<Verdict>;

export class LeanGame implements OutsideGame {
  readonly kind = "outside";
  readonly actions = null;
  readonly #theorem: Theorem;
  readonly #check: CheckProof;
  readonly #rules: LeanRules;
  readonly #closing = new AbortController();
  readonly #log: { readonly action: string; readonly accepted: boolean }[] = [];
  #verdict: Verdict | null = null;
  #done = false;

  constructor(theorem: Theorem, check: CheckProof, rules: LeanRules) {
    this.#theorem = theorem;
    this.#check = check;
    this.#rules = rules;
  }

  async start(): Promise<void> {}

  render(): string {
    const { stepsMax, messageCharactersMax } = this.#rules;
    return proofText({
      stepsMax,
      informal: this.#theorem.informal,
      code: this.#code(this.#accepted()),
      log: this.#log,
      verdict: this.#verdict,
      messageCharactersMax,
    });
  }

  async act(action: string): Promise<Effect> {
    if (this.#done) throw new Error("this proof is over; open a new one");
    const verdict =
      action === ""
        ? rejected("Empty tactic is not allowed.")
        : await this.#check(this.#code([...this.#accepted(), action]), this.#closing.signal);
    const { accepted, proven, timedOut } = verdict;
    this.#verdict = verdict;
    this.#log.push({ action, accepted });
    const { stepsMax, stepReward, acceptedReward, rejectedReward } = this.#rules;
    let reward = stepReward + (accepted ? acceptedReward : rejectedReward);
    if (proven) reward += this.#rules.provenReward;
    if (timedOut) reward += this.#rules.timeoutReward;
    this.#done = proven || this.#log.length >= stepsMax;
    if (this.#done && !proven) reward += this.#rules.stepsMaxReward;
    return { reward, done: this.#done, effective: accepted, valid: accepted, success: proven };
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error("the episode was closed"));
  }

  #accepted(): string[] {
    return this.#log.filter(({ accepted }) => accepted).map(({ action }) => action);
  }

  #code(tactics: readonly string[]): string {
    return proofCode(this.#theorem, this.#rules.defaultImports, tactics);
  }
}
