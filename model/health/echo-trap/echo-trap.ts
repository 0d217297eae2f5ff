/**
 * Detects the Echo Trap: agents repeat what once worked until nothing varies. The detector combines several signs into one verdict
 * with reasons. It is a pure reducer over recorded numbers, and runs live and offline.
 *
 * - The verdict is "collapsed" if the signs include constant groups, or a fall of success and a second sign.
 * - If success is high and near its best, four things do not count as signs: a small spread, constant groups, low entropy and a low likelihood. A
 *   solved task also explains a spike of the gradient. Success never explains replies that repeat or are malformed, because such
 *   replies appear before success falls from 100 %.
 * - The state is plain data. Most signs compare a run with its own start, so begin with `TRAP_START` after a roll-back.
 *
 * Source: signs of https://arxiv.org/abs/2504.20073 (section 4) and https://arxiv.org/abs/2604.06268; the thresholds are Bunraku's.
 */
import { TRAP_RULE, type TrapRule } from "./rule.ts";
import { isMeasured, type Sign, type SignKind, signs } from "./signs.ts";
import { observe, type TrapPoint, type TrapState } from "./tracks.ts";

export { TRAP_RULE, type TrapRule } from "./rule.ts";
export { TRAP_START, type TrapPoint, type TrapState } from "./tracks.ts";

export type Verdict = "healthy" | "solved" | "warning" | "collapsed";

/** A solved task stays solved until success is this far below `solvedAt`, so the verdict does not flip by chance. */
const SOLVED_MARGIN = 0.1;

export interface TrapJudgment {
  readonly state: TrapState;
  readonly verdict: Verdict;
  /** Signs that lasted long enough (`patience`); empty if healthy or solved. */
  readonly reasons: readonly Sign[];
}

/** The verdict after one more update. */
export function echoTrap(state: TrapState, point: TrapPoint, rule: TrapRule = TRAP_RULE): TrapJudgment {
  const tracks = observe(state.tracks, point, rule);
  const solvedAt = rule.solvedAt - (state.solved ? SOLVED_MARGIN : 0);
  const solved = tracks.success !== undefined && tracks.success.smooth >= solvedAt;
  const current = signs(tracks, rule, solved);
  // A sign that this update does not measure stays, but the sign's streak does not grow.
  const growth = (kind: SignKind) => Number(isMeasured(kind, point));
  const streaks = Object.fromEntries(
    current.map(({ kind }) => [kind, (state.streaks[kind] ?? 0) + growth(kind)]),
  ) as TrapState["streaks"];
  const long = current.filter(({ kind }) => streaks[kind]! >= (kind === "gradient" ? 1 : rule.patience));
  const lasting = isChance(long, tracks, rule) ? [] : long;
  const verdict = judge(new Set(lasting.map(({ kind }) => kind)), solved);
  return { state: { tracks, streaks, solved }, verdict, reasons: lasting };
}

/** Success varies with the boards, so a small fall of success without another sign does not count. */
function isChance(found: readonly Sign[], { success }: TrapState["tracks"], { successFallAlone }: TrapRule): boolean {
  const [only, another] = found;
  return only?.kind === "success" && another === undefined && success!.best - success!.smooth < successFallAlone;
}

function judge(kinds: ReadonlySet<SignKind>, solved: boolean): Verdict {
  if (kinds.size === 0) return solved ? "solved" : "healthy";
  if (kinds.has("constant") || (kinds.has("success") && kinds.size > 1)) return "collapsed";
  return "warning";
}
