/** @jsxImportSource hono/jsx */
/** Whether the run is still learning: the Echo Trap detector's verdict, its reasons and signals, and what was done about it. */
import { ChartFrame, EventsFrame, type PageProps, Shell } from "./shell.tsx";

const SIGNALS = [
  { id: "spread", title: "Reward spread", note: "within a group" },
  { id: "flat", title: "Groups without spread", note: "share" },
  { id: "entropy", title: "Entropy", note: "nats per token" },
  { id: "gradient", title: "Gradient norm", note: "before clipping" },
  { id: "echo", title: "Echo", note: "share" },
  {
    id: "information",
    title: "Thought and prompt",
    note: "mutual information, nats",
    empty: "not measured: set health.collapse.everyUpdates",
  },
];

export const AlarmsPage = ({ view }: PageProps) => (
  <Shell view={view} path="/alarms" main="verdict-title" styles={["uplot.css", "charts.css"]} script="page-alarms.js">
    <section class="card verdict" aria-labelledby="verdict-title" data-verdict="none" id="verdict">
      <h2 id="verdict-title">Echo Trap</h2>
      <p class="word" id="verdict-word">
        not judged yet
      </p>
      <p id="verdict-text">
        After each update the detector looks for what comes before a collapse: rewards of a group that no longer differ,
        an entropy that falls, a gradient that jumps, replies that repeat themselves.
      </p>
    </section>
    <div class="grid">
      <section class="card wide" aria-labelledby="history-title">
        <header class="card-head">
          <h2 id="history-title">Verdicts and interventions</h2>
          <p class="note">newest first; interventions are off unless health.ladder names some</p>
        </header>
        <ol class="list events" id="history" aria-label="Verdicts and interventions" />
      </section>
      <EventsFrame title="Warnings and errors" />
      {SIGNALS.map((chart) => (
        <ChartFrame {...chart} />
      ))}
    </div>
  </Shell>
);
