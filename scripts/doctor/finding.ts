/** One thing that doctor looked at: what it found, and what that means for a run. */
export interface Finding {
  readonly name: string;
  /** low: a run works, with less; absent: a run does without; broken: a run would fail, or be wrong. */
  readonly state: "ok" | "low" | "absent" | "broken";
  readonly found: string;
  readonly means: string;
}
