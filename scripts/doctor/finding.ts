/** One check of doctor: what it found, and what that means for a run. */
export interface Finding {
  readonly name: string;
  /** low: a run works with less; absent: a run works without it; broken: a run fails or computes wrong numbers. */
  readonly state: "ok" | "low" | "absent" | "broken";
  readonly found: string;
  readonly means: string;
}
