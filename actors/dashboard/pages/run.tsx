/** @jsxImportSource hono/jsx */
/** How well the run learns: success beside its bounds, and the curves that say why. */
import type { Overview } from "../answers.ts";
import { ChartFrame, EventsFrame, type PageProps, Shell } from "./shell.tsx";

const percent = (share: number | null) => (share === null ? "–" : `${(share * 100).toFixed(1)} %`);

const NUMBERS = [
  ["random", "Random", "a uniform-random player"],
  ["taught", "Taught", "after the warm start"],
  ["before", "Before", "when reinforcement began"],
  ["now", "Now", "latest validation"],
  ["best", "Best possible", "the optimal player"],
] as const;

const CHARTS = [
  { id: "reward", title: "Reward" },
  { id: "entropy", title: "Entropy", note: "nats per token" },
  { id: "gradient", title: "Gradient norm", note: "before clipping" },
  { id: "length", title: "Tokens", note: "per episode" },
  { id: "validity", title: "Replies", note: "share of turns" },
  { id: "kl", title: "KL", note: "nats per token" },
  { id: "clip", title: "Clipped", note: "share of tokens" },
  { id: "filter", title: "Filter", note: "share of groups" },
  { id: "speed", title: "Speed", note: "tokens per second" },
  { id: "warm", title: "Warm start", note: "loss by step", empty: "no values yet; none come if it was in the cache" },
];

const Success = ({ view }: { view: Overview }) => (
  <section class="numbers card" aria-label="Success on the validation boards">
    <dl>
      {NUMBERS.map(([id, label, note]) => (
        <div class={`number ${id}`}>
          <dt>{label}</dt>
          <dd id={`number-${id}`}>{percent(view.success[id])}</dd>
          <dd class="note" id={`${id}-note`}>
            {note}
          </dd>
        </div>
      ))}
    </dl>
    <div class="scale" id="scale" aria-hidden="true" />
  </section>
);

/** How charts are drawn, and which other runs are drawn with them. */
const Tools = () => (
  <form class="tools" id="tools" aria-label="How charts are drawn">
    <label>
      Smoothing <input type="range" name="smoothing" min="0" max="0.99" step="0.01" value="0" />
      <output id="smoothing-now">0.00</output>
    </label>
    <label>
      <input type="checkbox" name="log" /> Log axis
    </label>
    <details id="compare">
      <summary>Compare runs</summary>
      <div class="drop card">
        <p class="note">Runs in folders beside this one; at most 5 are drawn with it.</p>
        <ul id="compare-list" />
      </div>
    </details>
    <ul class="chosen" id="compared" aria-label="Runs drawn with this one" />
  </form>
);

const Latest = () => (
  <section class="card wide latest" aria-labelledby="latest-title">
    <header class="card-head">
      <h2 id="latest-title">Latest episode</h2>
      <p class="note">as the policy plays it</p>
      <a href="/episodes">All episodes</a>
    </header>
    <article id="latest" aria-live="off">
      <p class="empty">The first finished episode will be shown here.</p>
    </article>
  </section>
);

export const RunPage = ({ view }: PageProps) => (
  <Shell
    view={view}
    path="/"
    main="success-title"
    styles={["uplot.css", "charts.css", "episodes.css", "player.css"]}
    script="page-run.js"
  >
    <Success view={view} />
    <Tools />
    <div class="grid">
      <div class="wide">
        <ChartFrame id="success" title="Success" note="share of episodes solved, by update" />
      </div>
      <EventsFrame title="Events" />
      {view.env.includes("+") && (
        <div class="wide" id="mix" data-envs={view.env}>
          <ChartFrame id="envs" title="Success by env" note="validation, by update" />
        </div>
      )}
      {CHARTS.map((chart) => (
        <ChartFrame {...chart} />
      ))}
      <Latest />
    </div>
  </Shell>
);
