/** @jsxImportSource hono/jsx */
/** The page about the run: success and its baselines, charts of training, events, and the latest episode. */
import { percent } from "../../number-text.ts";
import type { Overview } from "../answers.ts";
import { ChartFrame, EventsFrame, type PageProps, Shell, Tools } from "./shell.tsx";

const NUMBERS = [
  ["random", "Random", "uniform-random player"],
  ["taught", "Taught", "after imitation"],
  ["before", "Before", "before the first update"],
  ["now", "Now", "latest validation"],
  ["best", "Best possible", "optimal player"],
  ["expert", "Expert", "a scripted player; the best possible success is unknown"],
] as const;

/** At most one of "best" and "expert" has a value. The page hides a number that has no value. */
const isCeiling = (id: string) => id === "best" || id === "expert";

const CHARTS = [
  { id: "reward", title: "Reward" },
  { id: "entropy", title: "Entropy", note: "nats per token" },
  { id: "gradient", title: "Gradient norm", note: "before clipping" },
  { id: "length", title: "Tokens written", note: "per episode" },
  { id: "validity", title: "Reply quality", note: "share of turns" },
  { id: "kl", title: "KL", note: "nats per token" },
  { id: "clip", title: "Clipped ratios", note: "share of tokens" },
  { id: "filter", title: "Group filter", note: "share of groups" },
  { id: "speed", title: "Speed", note: "tokens per second" },
  { id: "warm", title: "Warm start", note: "loss by step" },
];

const Success = ({ view }: { view: Overview }) => (
  <section class="numbers card" aria-label="Success on the validation boards">
    <dl>
      {NUMBERS.map(([id, label, note]) => (
        <div class={`number ${id}`} hidden={isCeiling(id) && view.success[id] === null}>
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

const Latest = () => (
  <section class="card wide latest" id="latest-card" aria-labelledby="latest-title">
    <header class="card-head">
      <h2 id="latest-title">Latest episode</h2>
      <a href="episodes">All episodes</a>
    </header>
    <article id="latest" aria-live="off">
      <p class="empty">The first finished episode appears here.</p>
    </article>
  </section>
);

export const RunPage = ({ view }: PageProps) => (
  <Shell
    view={view}
    path="./"
    main="success-title"
    styles={["uplot.css", "charts.css", "episodes.css", "player.css"]}
    script="page-run.ts"
  >
    <Success view={view} />
    <Tools canAddCharts />
    <div class="grid">
      <div class="wide">
        <ChartFrame id="success" title="Success" note="share of episodes solved" empty="no values yet" />
      </div>
      <EventsFrame title="Events" />
      {view.env.includes("+") && (
        <div class="wide" id="mix" data-envs={view.env}>
          <ChartFrame id="envs" title="Success by env" note="validation" />
        </div>
      )}
      {CHARTS.map((chart) => (
        <ChartFrame {...chart} />
      ))}
      <Costs />
      <Latest />
    </div>
  </Shell>
);

const Costs = () => (
  <section class="card" id="costs-card" aria-labelledby="costs-title" hidden>
    <header class="card-head">
      <h2 id="costs-title">Costs</h2>
      <p class="note">a point is one percentage point of validation success gained since the first update</p>
    </header>
    <div class="times" id="time-spent" />
    <div class="table costs">
      <table>
        <thead>
          <tr>
            <td />
            <th>whole run</th>
            <th>from the first update</th>
            <th>per point</th>
          </tr>
        </thead>
        <tbody id="costs" />
      </table>
    </div>
  </section>
);
