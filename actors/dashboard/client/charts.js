/**
 * Which metrics each chart draws, and how. A table.
 *
 * `name` is the metric; `flip` draws 1 - value. `from0`: the axis starts at 0. `sync`: hovers together with the others.
 * `dots`: a dot for each value. Of a compared run, the first line is drawn.
 */
const share = (value) => `${(value * 100).toFixed(1)} %`;
const digits = (count) => (value) => value.toFixed(count);
/** Of numbers that may be a millionth: "0.0123", "-1.4e-6". Neighbours on an axis differ in the second digit or the third. */
const small = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toFixed(4));
const smallTick = (value) =>
  value !== 0 && Math.abs(value) < 1e-3
    ? Number(value.toPrecision(3)).toExponential()
    : String(Number(value.toFixed(4)));
const whole = (value) => Math.round(value).toLocaleString("en");

const one = (name, color = "--accent") => ({ name, label: "", color, width: 1.75 });
const two = (name, label, color) => ({ name, label, color, width: 1.75 });
const shares = { format: share, tick: (value) => `${Number((value * 100).toFixed(1))} %`, from0: true, sync: true };

const reward = {
  lines: [two("train/reward_mean", "mean", "--accent"), two("train/in_group_std", "in-group std", "--second")],
  format: digits(2),
  sync: true,
};
const entropy = { lines: [one("train/entropy")], format: digits(3), from0: true, sync: true };
const gradient = { lines: [one("train/grad_norm")], format: digits(2), from0: true, sync: true };
const speed = { lines: [one("speed/tokens_per_second")], format: whole, from0: true, sync: true };

/** Of the page about the run. */
export const RUN = {
  success: {
    lines: [
      { name: "validate/success", label: "validation", color: "--accent", width: 2.25, dots: true },
      { name: "train/success", label: "training", color: "--second", width: 1.25 },
    ],
    guides: [
      { name: "baseline/random", label: "random" },
      { name: "baseline/best", label: "best possible" },
    ],
    range: [0, 1.06],
    format: share,
    tick: (value) => (value > 1 ? "" : `${Math.round(value * 100)} %`),
    sync: true,
  },
  reward,
  entropy,
  gradient,
  speed,
  length: {
    lines: [two("train/reply_tokens", "written", "--accent"), two("train/think_tokens", "thinking", "--second")],
    format: digits(1),
    from0: true,
    sync: true,
  },
  validity: {
    lines: [
      { ...two("train/format_errors", "well-formed", "--accent"), flip: true },
      two("train/effective", "effective", "--second"),
    ],
    ...shares,
  },
  kl: {
    lines: [two("loss/ratio_kl", "of the update", "--accent"), two("loss/kl", "to the start", "--second")],
    format: small,
    tick: smallTick,
    sync: true,
  },
  clip: {
    lines: [two("loss/clip_fraction_high", "high", "--accent"), two("loss/clip_fraction_low", "low", "--second")],
    ...shares,
  },
  filter: {
    lines: [two("train/kept_groups", "kept", "--accent"), two("train/zero_std_groups", "without spread", "--second")],
    ...shares,
  },
  warm: { lines: [one("warm/loss")], format: digits(3), from0: true, sync: false },
};

const COLORS = ["--accent", "--second", "--run-1", "--run-2", "--run-3", "--run-4", "--run-5"];

/** Of the page about a run over a mix: one line for each env. */
export const byEnv = (names) => ({
  lines: names.map((env, i) => {
    const line = two(`validate/success{env=${env}}`, env, COLORS[i % COLORS.length]);
    return { ...line, dots: true };
  }),
  ...shares,
});

/** Of the page about the actors. */
export const ACTORS = {
  speed,
  parts: {
    lines: [two("speed/rollout_s", "rollout", "--accent"), two("speed/update_s", "update", "--second")],
    format: digits(2),
    from0: true,
    sync: true,
  },
};

/** Of the page about alarms: what the detector looks at. */
export const ALARMS = {
  entropy,
  gradient,
  spread: { lines: [one("train/in_group_std")], format: digits(2), from0: true, sync: true },
  flat: { lines: [one("train/zero_std_groups")], ...shares },
  echo: {
    lines: [
      two("train/repetition", "repeated", "--accent"),
      { ...two("train/format_errors", "well-formed", "--second"), flip: true },
    ],
    ...shares,
  },
  information: { lines: [one("collapse/mi_estimate")], format: digits(3), sync: true },
};
