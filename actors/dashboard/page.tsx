/**
 * The page's HTML: everything that can be said at once, and empty frames of fixed size for what the script fills.
 * Knows no store. Text from outside is escaped by hono/jsx.
 *
 * - No inline script and no inline style: the content security policy forbids both.
 */
import type { Overview } from "./overview.ts";

const percent = (share: number | null) => (share === null ? "–" : `${(share * 100).toFixed(1)} %`);

const NUMBERS = [
  ["random", "Random", "a uniform-random player"],
  ["taught", "Taught", "after the warm start"],
  ["before", "Before", "when reinforcement began"],
  ["now", "Now", "latest validation"],
  ["best", "Best possible", "the optimal player"],
] as const;

/** `id` is what charts.js draws there. */
const CHARTS = [
  ["reward", "Reward", ""],
  ["entropy", "Entropy", "nats per token"],
  ["gradient", "Gradient norm", "before clipping"],
  ["length", "Reply tokens", ""],
  ["speed", "Speed", "tokens per second"],
  ["warm", "Warm start", "loss by step"],
] as const;

const Chart = ({ id, title, note }: { id: string; title: string; note: string }) => (
  <section class="card chart" aria-labelledby={`${id}-title`}>
    <header class="card-head">
      <h2 id={`${id}-title`}>{title}</h2>
      {note !== "" && <p class="note">{note}</p>}
      <div class="legend" id={`${id}-legend`} />
    </header>
    <div class="plot" id={`${id}-plot`} role="img" data-empty="no values yet" aria-label={`${title}: no values yet`} />
  </section>
);

const Head = ({ view }: { view: Overview }) => (
  <header class="top">
    <div class="brand">
      <img src="/assets/icon.svg" alt="" width="28" height="28" />
      <div>
        <h1>{view.run}</h1>
        <p class="note">
          {view.env} · <span id="engine">{view.engine ?? "engine not chosen yet"}</span>
        </p>
      </div>
    </div>
    <dl class="facts">
      <div>
        <dt>Update</dt>
        <dd id="update">
          {view.update === null ? "–" : `${view.update}${view.updates === null ? "" : ` of ${view.updates}`}`}
        </dd>
      </div>
      <div>
        <dt>Tokens/s</dt>
        <dd id="speed-now">
          {view.tokensPerSecond === null ? "–" : Math.round(view.tokensPerSecond).toLocaleString("en")}
        </dd>
      </div>
      <div>
        <dt>Elapsed</dt>
        <dd id="elapsed">–</dd>
      </div>
      <div>
        <dt>Page</dt>
        <dd id="link" data-state="connecting">
          connecting
        </dd>
      </div>
    </dl>
  </header>
);

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

const Episodes = () => (
  <section class="card episodes" aria-labelledby="episodes-title">
    <header class="card-head">
      <h2 id="episodes-title">Episodes</h2>
      <p class="note">as the policy plays them, newest first</p>
      <fieldset class="filter" id="filter">
        <legend class="hidden">Show</legend>
        {["all", "solved", "missed", "failed"].map((kind) => (
          <label>
            <input type="radio" name="kind" value={kind} checked={kind === "all"} />
            <span>{kind}</span>
          </label>
        ))}
      </fieldset>
    </header>
    <div class="split">
      <ol class="list" id="episode-list" aria-label="Latest episodes" />
      <article class="detail" id="episode" aria-live="off">
        <p class="empty">The first finished episode will be shown here, turn by turn.</p>
      </article>
    </div>
  </section>
);

export const RunPage = ({ view }: { view: Overview }) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta name="color-scheme" content="light dark" />
      <title>{`${view.run} · Bunraku`}</title>
      <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
      <link rel="stylesheet" href="/assets/uplot.css" />
      <link rel="stylesheet" href="/assets/style.css" />
      <link rel="stylesheet" href="/assets/charts.css" />
      <link rel="stylesheet" href="/assets/episodes.css" />
      <script src="/assets/uplot.js" defer />
      <script src="/assets/live.js" type="module" />
    </head>
    <body>
      <a class="skip" href="#episodes-title">
        Skip to the episodes
      </a>
      <main>
        <Head view={view} />
        <div class="state" data-phase={view.phase} id="state">
          <p id="status" role="status">
            {view.status}
          </p>
          <progress id="progress" max="1" value={view.progress ?? 0} aria-label="Progress" />
        </div>
        <Success view={view} />
        <div class="grid">
          <div class="wide">
            <Chart id="success" title="Success" note="share of episodes solved, by update" />
          </div>
          <section class="card" aria-labelledby="events-title">
            <header class="card-head">
              <h2 id="events-title">Events</h2>
            </header>
            <ol class="list" id="events" aria-label="Latest events" />
          </section>
          {CHARTS.map(([id, title, note]) => (
            <Chart id={id} title={title} note={note} />
          ))}
        </div>
        <Episodes />
        <footer>
          <p>
            Everything here is served by this run; nothing is loaded from elsewhere. For programs:{" "}
            <a href="/metrics">/metrics</a>, <a href="/api/run">/api/run</a>, <a href="/api/episodes">/api/episodes</a>.
          </p>
        </footer>
      </main>
    </body>
  </html>
);

/** Shown before the run was started in the store. */
export const EmptyPage = () => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <meta http-equiv="refresh" content="2" />
      <title>Bunraku</title>
      <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
      <link rel="stylesheet" href="/assets/style.css" />
    </head>
    <body>
      <main class="nothing">
        <h1>No run here yet</h1>
        <p>The run is being started; this page looks again every two seconds.</p>
      </main>
    </body>
  </html>
);
