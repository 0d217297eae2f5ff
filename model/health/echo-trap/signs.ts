/** The signs of the Echo Trap. Most signs compare a run with its own past. */
import { median } from "../../statistics.ts";
import type { TrapRule } from "./rule.ts";
import { startUpdatesOf, type Track, type Tracks, type TrapPoint } from "./tracks.ts";

export type SignKind =
  | "success"
  | "spread"
  | "constant"
  | "entropy-low"
  | "entropy-high"
  | "gradient"
  | "repetition"
  | "information"
  | "validity"
  | "likelihood";

export interface Sign {
  readonly kind: SignKind;
  /** The measurement, and what it is compared with. */
  readonly text: string;
}

/** The measurement that a sign needs. The sign of constant groups needs one of two measurements (`isMeasured`). */
const MEASURED = {
  success: "success",
  spread: "rewardStd",
  "entropy-low": "entropy",
  "entropy-high": "entropy",
  gradient: "gradNorm",
  repetition: "repetition",
  information: "mutualInformation",
  validity: "validity",
  likelihood: "likelihood",
} as const satisfies Record<Exclude<SignKind, "constant">, keyof TrapPoint>;

export const isMeasured = (kind: SignKind, point: TrapPoint): boolean =>
  kind === "constant"
    ? point.rewardStd !== undefined || point.zeroStdShare !== undefined
    : point[MEASURED[kind]] !== undefined;

/**
 * Success counts as near its best within this distance. Chance alone moves the smoothed success of 128 episodes on new boards up or
 * down by 0.05. The best is the maximum of such values, so the best is usually too high.
 */
const NEAR_BEST = 0.15;

/** The signs that are present, in a fixed order. @param solved  true if the task counts as solved; then some signs do not count */
export function signs(tracks: Tracks, rule: TrapRule, solved: boolean): Sign[] {
  const { success } = tracks;
  const isNearBest =
    success !== undefined && success.smooth >= rule.explainedAt && success.smooth >= success.best - NEAR_BEST;
  const explained = solved || isNearBest;
  const found: Sign[] = [];
  const pastStart = (name: Exclude<keyof TrapPoint, "gradNorm">) => {
    const track = tracks[name];
    return track !== undefined && track.count > startUpdatesOf(name, rule) ? track : null;
  };
  const check = (
    kind: Exclude<SignKind, "gradient" | "constant">,
    holds: (track: Track) => boolean,
    text: (track: Track) => string,
  ) => {
    const track = pastStart(MEASURED[kind]);
    if (track !== null && holds(track)) found.push({ kind, text: text(track) });
  };
  const fell = ({ smooth, best }: Track) => smooth < rule.successShare * best && best - smooth >= rule.successFall;
  check("success", fell, ({ smooth, best }) => `success fell to ${show(smooth)} from its best ${show(best)}`);
  check("spread", (track) => !explained && share(track) < rule.spreadShare, ofStart("in-group reward std"));
  const [std, constant] = [pastStart("rewardStd"), pastStart("zeroStdShare")];
  const isSmall = std !== null && share(std) < rule.constantShare;
  if (!explained && (isSmall || (constant !== null && constant.smooth >= rule.constantGroups))) {
    const texts = [
      ...(std === null ? [] : [`in-group reward std ${show(std.smooth)}`]),
      ...(constant === null ? [] : [`${show(constant.smooth)} of the groups constant`]),
    ];
    found.push({ kind: "constant", text: `groups hardly differ: ${texts.join(", ")}` });
  }
  check("entropy-low", (track) => !explained && share(track) < rule.entropyShare, ofStart("entropy"));
  check("entropy-high", (track) => share(track) > rule.entropyRise, ofStart("entropy"));
  check("repetition", ({ smooth, start }) => smooth - start > rule.repetitionRise, ofStart("repetition"));
  check(
    "information",
    (track) => share(track) < rule.informationShare,
    ofStart("mutual information of prompt and reasoning"),
  );
  check("validity", ({ smooth, start }) => start - smooth > rule.validityFall, ofStart("share of well-formed replies"));
  // Replies that solved episodes become less likely: "lazy likelihood displacement", https://arxiv.org/abs/2512.04220.
  const displaced = ({ smooth, best }: Track) =>
    smooth < rule.surpriseRise * best && best - smooth >= rule.likelihoodFall;
  check(
    "likelihood",
    (track) => !explained && displaced(track),
    ({ smooth, best }) => `log-probability of solved episodes fell to ${show(smooth)} from its best ${show(best)}`,
  );
  // In most updates of a solved task no group has a gradient, so any gradient would count as a spike.
  return solved ? found : [...found, ...gradientSpike(tracks.gradNorms, rule)];
}

/** The smoothed value divided by its start; 1 if the start is not above 0. */
const share = ({ smooth, start }: Track) => (start > 0 ? smooth / start : 1);

const show = (value: number) => Number(value.toPrecision(3)).toString();

const ofStart =
  (what: string) =>
  ({ smooth, start }: Track) =>
    `${what} is ${show(smooth)}; at the start it was ${show(start)}`;

function gradientSpike(norms: readonly number[], rule: TrapRule): Sign[] {
  const { gradientSpike: factor, gradientWindow, startUpdates } = rule;
  const newest = norms.at(-1);
  const earlier = norms.slice(0, -1);
  if (newest === undefined || earlier.length < startUpdates) return [];
  const usual = median(earlier.slice(-gradientWindow));
  // If most updates have no gradient, as in a solved task, the median is 0, and there is no ratio to the median.
  if (usual === 0 || newest <= factor * usual) return [];
  const text = `gradient norm ${show(newest)} is ${show(newest / usual)} times its median ${show(usual)}`;
  return [{ kind: "gradient", text }];
}
