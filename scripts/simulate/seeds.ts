/** Many simulated runs: one for each seed, in sync mode for even seeds and in async mode for odd ones. */
import { FAULT_KINDS, type FaultKind } from "./faults.ts";
import { type Result, simulate } from "./simulate.ts";

export interface Summary {
  /** Seeds whose run broke an invariant, with the last events. */
  readonly failed: readonly { readonly seed: number; readonly broken: string; readonly tail: readonly string[] }[];
  readonly events: number;
  readonly simulatedMs: number;
  readonly faults: Readonly<Record<FaultKind, number>>;
}

/** Simulates one seed. In sync mode the result must equal that of a run without faults (invariant 7). */
export async function simulateSeed(seed: number): Promise<Result> {
  const mode = seed % 2 === 0 ? "sync" : "async";
  const result = await simulate({ seed, faults: true, mode });
  // A run has no parameters if it broke an invariant before its end, or if it failed because the disk was full at its end.
  if (mode === "async" || result.broken !== null || result.parameters === null) return result;
  const expected = await undisturbed();
  if (result.parameters !== expected.parameters)
    return { ...result, broken: "invariant 7: the policy differs from that of a run without faults" };
  const own = new Set(result.metrics.split("\n"));
  const other = expected.metrics.split("\n").find((line) => !own.delete(line)) ?? [...own][0];
  return other === undefined
    ? result
    : { ...result, broken: `invariant 7: a metric differs from that of a run without faults: ${other}` };
}

let reference: Promise<Result> | null = null;
/** The result of a run without faults. */
export function undisturbed(): Promise<Result> {
  reference ??= simulate({ seed: 0, faults: false, mode: "sync" });
  return reference;
}

/** @param tell  called after each seed */
export async function simulateSeeds(
  first: number,
  count: number,
  tell: (result: Pick<Result, "seed" | "broken">) => void,
): Promise<Summary> {
  const results: Omit<Result, "tail" | "metrics">[] = [];
  const failed: { seed: number; broken: string; tail: readonly string[] }[] = [];
  for (let seed = first; seed < first + count; seed++) {
    const { tail, metrics: _, ...result } = await simulateSeed(seed);
    results.push(result);
    if (result.broken !== null) failed.push({ seed, broken: result.broken, tail });
    tell(result);
  }
  const sum = (of: (result: (typeof results)[number]) => number) => results.reduce((all, one) => all + of(one), 0);
  const faults = Object.fromEntries(FAULT_KINDS.map((kind) => [kind, sum((one) => one.faults[kind])]));
  return {
    failed,
    events: sum(({ events }) => events),
    simulatedMs: sum((one) => one.simulatedMs),
    faults: faults as Summary["faults"],
  };
}
