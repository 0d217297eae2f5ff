/**
 * The whole picture: title, legend, and small multiples of one size in a grid. Success, if it comes first, has a row of
 * its own. Knows no files.
 */
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { type Colored, type Contents, contentsOf, SUCCESS } from "./contents.ts";
import { legend } from "./labels.ts";
import { headHeight, panel } from "./panel.ts";
import type { Entry } from "./runs.ts";
import { element, escapeText, INK, PALETTE, STYLE, shorten, words, wrap } from "./svg.ts";

/** In pixels; what a README shows without scaling. */
export const WIDTH = 900;
const MARGIN = 20;
const GAP = 12;
const INNER = WIDTH - 2 * MARGIN;

/** Plot and axis of a panel, below its head. */
const BODY = { wide: 290, small: 172 } as const;

export const ENTRIES_MAX = PALETTE.length;

interface Row {
  readonly contents: readonly Contents[];
  readonly wide: boolean;
  readonly columns: number;
}

/** @param entries at most ENTRIES_MAX, at least one */
export function picture(entries: readonly Entry[], metrics: readonly MetricName[], title: string | null): string {
  const colored = entries.map((entry, i): Colored => ({ ...entry, color: PALETTE[i]! }));
  const contents = metrics.map((name) => contentsOf(name, colored));
  const ends = contents
    .filter(({ stepName }) => stepName === "update")
    .flatMap(({ lines }) => lines.map(({ curve }) => curve.steps.at(-1)!));
  const lastUpdate = Math.max(0, ...ends);
  const shownTitle = title ?? [...new Set(runsOf(entries).map(({ facts }) => facts.env))].join(", ");
  const top = header(colored, shownTitle, rowsOf(contents)[0]!.wide ? contents[0]! : null);
  let y = top.height;
  const panels = rowsOf(contents).flatMap(({ contents, wide, columns }) => {
    const width = (INNER - GAP * (columns - 1)) / columns;
    const head = Math.max(...contents.map((one) => headHeight(one, width, wide)));
    const height = head + (wide ? BODY.wide : BODY.small);
    const row = contents.map((one, i) =>
      panel(one, { x: MARGIN + i * (width + GAP), y, width, height }, head, wide, lastUpdate),
    );
    y += height + GAP;
    return row;
  });
  const height = y - GAP + MARGIN;
  const described = `${shownTitle}: ${metrics.join(", ")} of ${colored.map(({ label }) => label).join(", ")}`;
  return `${element(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width: WIDTH,
      height,
      viewBox: `0 0 ${WIDTH} ${height}`,
      role: "img",
    },
    element("title", {}, escapeText(described)),
    element("style", {}, STYLE),
    element("rect", { width: WIDTH, height, fill: INK.paper }),
    ...top.markup,
    ...panels,
  )}\n`;
}

/** The widest panel first, then rows of equal ones: two of four are better than three and one. */
function rowsOf(contents: readonly Contents[]): Row[] {
  const wide = contents[0]!.metric === SUCCESS || contents.length === 1;
  const small = contents.slice(wide ? 1 : 0);
  const columns = small.length === 4 ? 2 : Math.min(3, small.length);
  const rows: Row[] = wide ? [{ contents: contents.slice(0, 1), wide, columns: 1 }] : [];
  for (let i = 0; i < small.length; i += columns) {
    rows.push({ contents: small.slice(i, i + columns), wide: false, columns });
  }
  return rows;
}

/** @param wide the panel that names its curves itself, or null */
function header(entries: readonly Colored[], title: string, wide: Contents | null) {
  const runs = runsOf(entries);
  const envs = [...new Set(runs.map(({ facts }) => facts.env))].join(", ");
  const grouped = entries.some(({ runs }) => runs.length > 1);
  const lines = wrap(
    [
      ...(envs === title ? [] : [envs]),
      runs.length === 1 ? `run ${runs[0]!.name}` : `${runs.length} runs`,
      ...(grouped ? ["thin lines are single seeds, thick ones their mean where all of them have a value"] : []),
    ].join(" · "),
    13,
    INNER,
  );
  const markup = [
    words(shorten(title, 20, INNER), { x: MARGIN, y: 42, class: "title" }),
    ...lines.map((text, i) => words(text, { x: MARGIN, y: 64 + 18 * i, class: "entry muted" })),
  ];
  const height = 64 + 18 * (lines.length - 1) + 18;
  const named =
    wide !== null && entries.every((entry) => wide.lines.some((line) => line.entry === entry && line.kind === "main"));
  if (!grouped && (named || entries.length === 1)) return { markup, height };
  const names = legend(entries, MARGIN, height + 10, INNER);
  return { markup: [...markup, ...names.markup], height: height + names.height + 4 };
}

const runsOf = (entries: readonly Entry[]) => [...new Set(entries.flatMap(({ runs }) => runs))];
