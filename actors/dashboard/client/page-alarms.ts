/** The page about alarms: the Echo Trap detector's verdict, signs and history, and other warnings and errors. */
import type { News, StoredEvent } from "../answers.ts";
import { read } from "./api.ts";
import { ChartList, latestPoints } from "./chart-list.ts";
import { ALARMS_CHARTS, VERDICTS } from "./charts.ts";
import { chartTools } from "./compare.ts";
import { byId, eventRow, put } from "./dom.ts";
import { EventLines } from "./event-lines.ts";
import { start } from "./live.ts";
import { visible } from "./text.ts";

const ROWS_MAX = 200;
const KINDS = ["health", "intervention", "early-stop"];
const REASONS: Readonly<Record<string, string>> = {
  healthy: "There is no sign of a collapse.",
  solved: "Rewards no longer differ because every episode is solved; that is no collapse.",
};

const historyLines = new EventLines(ROWS_MAX);
const otherLines = new EventLines(ROWS_MAX);
const charts = new ChartList(ALARMS_CHARTS);
const compare = chartTools(charts);

/** The newest value of health/verdict, as a word. */
let verdict: string | null = null;
/** The newest event of kind "health", which has the reasons. */
let change: { readonly verdict: string; readonly text: string } | null = null;

/** An event's text is "update 12: collapsed: reason; reason", or "update 12: health: solved". */
function changeOf({ text, atMs }: StoredEvent) {
  const [, verdict = text, reasons = ""] = /^(?:update \d+: )?(?:health: )?(\w+)(?:: (.*))?$/s.exec(text) ?? [];
  const since = `since ${new Date(atMs).toLocaleTimeString("en-GB")}`;
  return { verdict, text: [reasons || (REASONS[verdict] ?? ""), since].filter((part) => part !== "").join(" · ") };
}

function showVerdict(): void {
  const word = verdict ?? change?.verdict;
  if (word === undefined) return;
  byId("verdict").dataset["verdict"] = word;
  put(byId("verdict-word"), visible(word));
  put(byId("verdict-text"), visible(change?.verdict === word ? change.text : (REASONS[word] ?? "")));
}

function takePoints(points: News["points"]): void {
  charts.take(points);
  for (const [name, , , value] of points) if (name === "health/verdict") verdict = VERDICTS[value] ?? null;
  showVerdict();
}

/** @param events  newest first */
function takeEvents(events: readonly StoredEvent[]): void {
  const history = events.filter(({ kind }) => KINDS.includes(kind));
  const others = events.filter((event) => event.level !== "info" && !history.includes(event));
  const newest = history.find(({ kind }) => kind === "health");
  if (newest !== undefined) change = changeOf(newest);
  showVerdict();
  byId("history").replaceChildren(...historyLines.add(history).map(eventRow));
  byId("events").replaceChildren(...otherLines.add(others).map(eventRow));
}

await start(
  async () => {
    const filters = [...KINDS.map((kind) => ({ kind })), { level: "warning" }];
    const [answers, verdicts] = await Promise.all([
      Promise.all(filters.map((filter) => read("api/events", { limit: ROWS_MAX, ...filter }))),
      latestPoints(["health/verdict"]),
      charts.load(),
    ]);
    takePoints(verdicts);
    const byNumber = new Map(answers.flatMap(({ events }) => events).map((event) => [event.id, event]));
    takeEvents([...byNumber.values()].sort((a, b) => b.id - a.id));
    await compare.show();
  },
  ({ points, events }) => {
    takePoints(points);
    takeEvents(events);
  },
);
