/** A table of all charts: the metrics, labels, colors and number formats of each chart. */
import type { MetricName } from "../../metrics/metrics.ts";
import { percent, whole } from "../../number-text.ts";

export interface LineSpec {
  readonly name: MetricName;
  readonly label: string;
  /** Name of a custom property of the style sheet. */
  readonly color: string;
  readonly width: number;
  /** True if the chart draws 1 - value. */
  readonly isComplement?: boolean;
  readonly hasDots?: boolean;
}

export interface ChartSpec {
  /** The lines of this run. For a compared run the chart draws only the first line. */
  readonly lines: readonly LineSpec[];
  /** Metrics that the chart draws as dashed lines across its width. */
  readonly guides?: readonly { readonly name: MetricName; readonly label: string }[];
  readonly format: (value: number) => string;
  readonly tick?: (value: number) => string;
  /** Fixed ends of the axis of values. */
  readonly range?: readonly [number, number];
  readonly from0?: boolean;
  /** True if the steps are steps of the warm start and not updates. */
  readonly isWarmStart?: boolean;
}

export type XAxis = "update" | "minutes" | "tokens";

/** The metrics that give a step's place on the axes `minutes` and `tokens`. */
export const AXIS_METRICS = ["speed/updates_per_minute", "total/tokens"] as const satisfies MetricName[];

/** The place of a step on an axis; null: the chart leaves the step out. */
type Place = (step: number, value: (name: (typeof AXIS_METRICS)[number]) => number | null) => number | null;

/** How each axis places a step, from the values of `AXIS_METRICS` at that step; null: the place is the step itself. */
export const PLACES: Readonly<Record<XAxis, Place | null>> = {
  update: null,
  minutes(step, value) {
    const perMinute = value("speed/updates_per_minute");
    return step === 0 ? 0 : perMinute && step / perMinute;
  },
  tokens: (step, value) => (step === 0 ? 0 : value("total/tokens")),
};

export type ChartTable = Readonly<Record<string, ChartSpec>>;

const digits = (count: number) => (value: number) => value.toFixed(count);
/** Number format for values that may be near a millionth: "0.0123", "-1.4e-6". */
const small = (value: number) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toFixed(4));
const smallTick = (value: number) =>
  value !== 0 && Math.abs(value) < 1e-3
    ? Number(value.toPrecision(3)).toExponential()
    : String(Number(value.toFixed(4)));

const line = (name: MetricName, label = "", color = "--accent"): LineSpec => ({ name, label, color, width: 1.75 });
const second = (name: MetricName, label: string) => line(name, label, "--second");
const shares = { format: percent, tick: (value: number) => `${Number((value * 100).toFixed(1))} %`, from0: true };

const entropy: ChartSpec = { lines: [line("train/entropy")], format: digits(3), from0: true };
const gradient: ChartSpec = { lines: [line("train/grad_norm")], format: digits(2), from0: true };
const speed: ChartSpec = { lines: [line("speed/tokens_per_second")], format: whole, from0: true };

export const RUN_CHARTS: ChartTable = {
  success: {
    lines: [
      { ...line("validate/success", "validation"), width: 2.25, hasDots: true },
      { ...second("train/success", "training"), width: 1.25 },
    ],
    guides: [
      { name: "baseline/random", label: "random" },
      { name: "baseline/best", label: "best possible" },
      { name: "baseline/expert", label: "expert" },
    ],
    range: [0, 1.06],
    format: percent,
    tick: (value) => (value > 1 ? "" : percent(value, 0)),
  },
  reward: {
    lines: [line("train/reward_mean", "mean"), second("train/in_group_std", "in-group std")],
    format: digits(2),
  },
  entropy,
  gradient,
  speed,
  length: {
    lines: [line("train/reply_tokens", "written"), second("train/think_tokens", "thinking")],
    format: digits(1),
    from0: true,
  },
  validity: {
    lines: [
      { ...line("train/format_errors", "well-formed"), isComplement: true },
      second("train/effective", "effective"),
    ],
    ...shares,
  },
  kl: {
    lines: [line("loss/ratio_kl", "to the old policy"), second("loss/kl", "to the reference")],
    format: small,
    tick: smallTick,
  },
  clip: { lines: [line("loss/clip_fraction_high", "high"), second("loss/clip_fraction_low", "low")], ...shares },
  filter: { lines: [line("train/kept_groups", "kept"), second("train/zero_std_groups", "zero spread")], ...shares },
  warm: { lines: [line("warm/loss")], format: digits(3), from0: true, isWarmStart: true },
};

export const chartOf = (name: MetricName): ChartSpec => ({
  lines: [line(name)],
  format: (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 }),
  isWarmStart: name.startsWith("warm/"),
});

const COLORS = ["--accent", "--second", "--run-1", "--run-2", "--run-3", "--run-4", "--run-5"];

/** The chart of success in a run with several envs (`env.mix`), with one line for each env. */
export const successByEnv = (envs: readonly string[]): ChartSpec => ({
  lines: envs.map((env, i) => ({
    ...line(`validate/success{env=${env}}` as MetricName, env, COLORS[i % COLORS.length]),
    hasDots: true,
  })),
  ...shares,
});

export const ACTORS_CHARTS: ChartTable = {
  speed,
  parts: {
    lines: [line("speed/rollout_s", "rollout"), second("speed/update_s", "update")],
    format: digits(2),
    from0: true,
  },
};

/** The detector's verdicts. The value of the metric health/verdict is an index of this list. */
export const VERDICTS: readonly string[] = ["healthy", "solved", "warning", "collapsed"];

export const ALARMS_CHARTS: ChartTable = {
  success: { lines: [line("train/success")], ...shares },
  verdicts: {
    lines: [line("health/verdict")],
    range: [0, 3.2],
    format: (value) => VERDICTS[value] ?? value.toFixed(1),
    tick: (value) => VERDICTS[value] ?? "",
  },
  entropy,
  gradient,
  spread: { lines: [line("train/in_group_std")], format: digits(2), from0: true },
  flat: { lines: [line("train/zero_std_groups")], ...shares },
  echo: {
    lines: [
      line("train/repetition", "repeated"),
      { ...second("train/format_errors", "well-formed"), isComplement: true },
    ],
    ...shares,
  },
  information: { lines: [line("collapse/mi_estimate")], format: digits(3) },
};
