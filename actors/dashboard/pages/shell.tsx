/** @jsxImportSource hono/jsx */
/**
 * The parts that the pages of a run share, and the pages that show only one message. The server renders the frames and most values; scripts
 * fill the frames. hono/jsx escapes all text.
 *
 * - The pages have no inline script and no inline style, because the content security policy forbids both.
 */
import type { Child } from "hono/jsx";
import { whole } from "../../number-text.ts";
import type { Overview } from "../answers.ts";

export interface PageProps {
  readonly view: Overview;
}

/** The addresses are relative, because the pages of another run are under /run/NAME/. */
const PAGES = [
  ["./", "Run"],
  ["actors", "Actors"],
  ["episodes", "Episodes"],
  ["alarms", "Alarms"],
  ["settings", "Settings"],
] as const;

const KEYS = [
  ["1 – 6", "go to Run, Actors, Episodes, Alarms, Settings, All runs"],
  ["↑ ↓", "previous or next episode in the list"],
  ["← →", "previous or next action of a replay"],
  ["Home End", "start or end of a replay"],
  ["Space", "play or pause a replay"],
  ["Arrows", "move, while you play by hand"],
  ["/", "search the episodes"],
  ["?", "show this list"],
] as const;

const Head = ({ view }: PageProps) => (
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
        <dd id="speed-now">{view.tokensPerSecond === null ? "–" : whole(view.tokensPerSecond)}</dd>
      </div>
      <div>
        <dt>Elapsed</dt>
        <dd id="elapsed">–</dd>
      </div>
      <div>
        <dt>Connection</dt>
        <dd id="link" data-state="connecting">
          connecting
        </dd>
      </div>
    </dl>
  </header>
);

const Keys = () => (
  <dialog id="keys" aria-labelledby="keys-title">
    <h2 id="keys-title">Keyboard shortcuts</h2>
    <dl>
      {KEYS.map(([key, text]) => (
        <div>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
    <form method="dialog">
      <button type="submit">Close</button>
    </form>
  </dialog>
);

interface ShellProps extends PageProps {
  readonly path: (typeof PAGES)[number][0];
  /** Style sheets in addition to style.css and parts.css. */
  readonly styles: readonly string[];
  readonly script: string;
  /** Id of the main heading, the target of the skip link. */
  readonly main: string;
  readonly children: Child;
}

export const Shell = ({ view, path, styles, script, main, children }: ShellProps) => (
  <html lang="en">
    <PageHead title={`${view.run} · Bunraku`} styles={["parts.css", ...styles]}>
      {styles.includes("uplot.css") && <script src="/assets/uplot.js" defer />}
      <script src={`/assets/${script}`} type="module" />
    </PageHead>
    <body>
      <a class="skip" href={`#${main}`}>
        Skip to the content
      </a>
      <main>
        <Head view={view} />
        <nav class="pages" aria-label="Pages">
          {PAGES.map(([to, name], i) => (
            <a href={to} aria-current={to === path ? "page" : undefined} aria-keyshortcuts={`${i + 1}`}>
              {name}
              {to === "alarms" && <span class="badge" id="alarm-badge" data-level={view.alarm?.level ?? "none"} />}
            </a>
          ))}
          <a href="/runs" aria-keyshortcuts={`${PAGES.length + 1}`}>
            All runs
          </a>
          <button type="button" id="show-keys" aria-keyshortcuts="?">
            Keys
          </button>
        </nav>
        <div class="state" data-phase={view.phase} id="state">
          <p id="status" role="status">
            {view.status}
          </p>
          <progress id="progress" max="1" value={view.progress ?? 0} aria-label="Progress" />
        </div>
        {children}
        <footer>
          <p>
            This page loads nothing from other machines. For programs: <a href="metrics">metrics</a> (Prometheus),{" "}
            <a href="api/openapi.json">api/openapi.json</a> (API).
          </p>
        </footer>
      </main>
      <Keys />
    </body>
  </html>
);

interface ChartFrameProps {
  readonly id: string;
  readonly title: string;
  readonly note?: string;
  /** The text while the chart has no values. Without this text, the page hides the chart until it has values. */
  readonly empty?: string;
}

export const ChartFrame = ({ id, title, note = "", empty }: ChartFrameProps) => (
  <section class={`card chart ${id}`} aria-labelledby={`${id}-title`} hidden={empty === undefined}>
    <header class="card-head">
      <h2 id={`${id}-title`}>{title}</h2>
      {note !== "" && <p class="note">{note}</p>}
      <div class="legend" id={`${id}-legend`} />
    </header>
    <div class="plot" id={`${id}-plot`} role="img" data-empty={empty} aria-label={`${title}: no values yet`} />
  </section>
);

export const EventsFrame = ({ title }: { title: string }) => (
  <section class="card events-card" aria-labelledby="events-title">
    <header class="card-head">
      <h2 id="events-title">{title}</h2>
    </header>
    <ol class="list events" id="events" aria-label={title} />
  </section>
);

/** The <head> of every page. @param styles  style sheets in addition to style.css */
export const PageHead = ({ title, styles = [], children }: { title: string; styles?: string[]; children?: Child }) => (
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>{title}</title>
    <link rel="icon" href="/assets/icon.svg" type="image/svg+xml" />
    {["style.css", ...styles].map((name) => (
      <link rel="stylesheet" href={`/assets/${name}`} />
    ))}
    {children}
  </head>
);

/** A page with one message, for a run that has not started or an unknown path. @param reloads  every two seconds */
const Notice = ({ title, reloads = false, children }: { title: string; reloads?: boolean; children: Child }) => (
  <html lang="en">
    <PageHead title="Bunraku">{reloads && <meta http-equiv="refresh" content="2" />}</PageHead>
    <body>
      <main class="nothing">
        <h1>{title}</h1>
        <p>{children}</p>
      </main>
    </body>
  </html>
);

export const EmptyPage = () => (
  <Notice title="No run here yet" reloads>
    The run is starting. This page reloads every two seconds.
  </Notice>
);

export const MissingPage = ({ path }: { path: string }) => (
  <Notice title="Page not found">
    There is no page {path}. <a href="/">Go to the first page</a>
  </Notice>
);

/** Settings of all charts, and the choice of runs to compare with. */
export const Tools = ({ canAddCharts = false }: { canAddCharts?: boolean }) => (
  <form class="tools" id="tools" aria-label="Chart settings">
    <label>
      Smoothing <input type="range" name="smoothing" min="0" max="0.99" step="0.01" value="0" />
      <output id="smoothing-now">0.00</output>
    </label>
    <label>
      <input type="checkbox" name="log" /> Logarithmic y axis
    </label>
    <label>
      X axis{" "}
      <select name="axis">
        <option value="update">updates</option>
        <option value="minutes">minutes of reinforcement</option>
        <option value="tokens">tokens written</option>
      </select>
    </label>
    <label>
      <input type="checkbox" name="seeds" /> Mean and band of seeds
    </label>
    {canAddCharts && (
      <select name="add" aria-label="Add a chart">
        <option>Add a chart…</option>
      </select>
    )}
    <details id="compare">
      <summary>Compare runs</summary>
      <div class="drop card">
        <p class="note">Runs in the same parent folder. Choose up to 5.</p>
        <ul id="compare-list" />
      </div>
    </details>
    <ul class="chosen" id="compared" aria-label="Compared runs" />
  </form>
);
