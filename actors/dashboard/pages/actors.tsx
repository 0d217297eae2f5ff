/** @jsxImportSource hono/jsx */
/** The page about the actors: what each actor does, and which actors wait for which others. */
import { ChartFrame, type PageProps, Shell } from "./shell.tsx";

export const ActorsPage = ({ view }: PageProps) => (
  <Shell
    view={view}
    path="actors"
    main="actors-title"
    styles={["uplot.css", "charts.css", "actors.css"]}
    script="page-actors.ts"
  >
    <section class="card" aria-labelledby="actors-title">
      <header class="card-head">
        <h2 id="actors-title">Actors</h2>
        <p class="note" id="actors-summary">
          updated every second
        </p>
      </header>
      <ul class="tree" id="actors">
        <li class="empty">
          No actor has reported yet. If this message stays, the supervisor has stopped: look at its terminal.
        </li>
      </ul>
    </section>
    <div class="grid">
      <section class="card chart" aria-labelledby="lag-title">
        <header class="card-head">
          <h2 id="lag-title">Staleness</h2>
          <p class="note">share of the trained episodes, by the age of their policy in updates</p>
        </header>
        <ul class="bars" id="lag" />
      </section>
      <ChartFrame id="speed" title="Speed" note="tokens per second" />
      <ChartFrame id="parts" title="Time per update" note="seconds" />
    </div>
  </Shell>
);
