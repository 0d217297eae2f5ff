/** @jsxImportSource hono/jsx */
/** The page about alarms: the Echo Trap detector's verdict, reasons and signs, the signs of other runs for comparison, and the interventions. */
import { ChartFrame, EventsFrame, type PageProps, Shell, Tools } from "./shell.tsx";

const CHARTS = [
  { id: "success", title: "Success", note: "share of training episodes" },
  { id: "verdicts", title: "Verdict" },
  { id: "spread", title: "Reward spread", note: "standard deviation within a group" },
  { id: "flat", title: "Groups with zero spread", note: "share of groups" },
  { id: "entropy", title: "Entropy", note: "nats per token" },
  { id: "gradient", title: "Gradient norm", note: "before clipping" },
  { id: "echo", title: "Repetition and form", note: "share of 4-grams; share of turns" },
  { id: "information", title: "Reasoning and prompt", note: "mutual information, nats" },
];

export const AlarmsPage = ({ view }: PageProps) => (
  <Shell view={view} path="alarms" main="verdict-title" styles={["uplot.css", "charts.css"]} script="page-alarms.ts">
    <section class="card verdict" aria-labelledby="verdict-title" data-verdict="none" id="verdict">
      <h2 id="verdict-title">Echo Trap</h2>
      <p class="word" id="verdict-word">
        no verdict yet
      </p>
      <p id="verdict-text">
        After each update the detector looks for signs of a collapse: rewards within a group stop differing, entropy
        falls, the gradient norm jumps, replies repeat themselves.
      </p>
    </section>
    <Tools />
    <div class="grid">
      <section class="card wide" aria-labelledby="history-title">
        <header class="card-head">
          <h2 id="history-title">Verdicts and interventions</h2>
          <p class="note">newest first; only a run with health.ladder intervenes</p>
        </header>
        <ol class="list events" id="history" aria-label="Verdicts and interventions" />
      </section>
      <EventsFrame title="Warnings and errors" />
      {CHARTS.map((chart) => (
        <ChartFrame {...chart} />
      ))}
    </div>
  </Shell>
);
