/**
 * SVG as text: elements, escaped words, the look of the run's page. Knows no metrics.
 *
 * - Words pass `escapeText` and attributes `escapeMarkup`, so a folder's name or a title can never become markup.
 * - Numbers have two decimals, so equal pictures are equal bytes.
 */
import { visible } from "../../actors/dashboard/client/text.ts";

/** The light colours of the page's style sheet. */
export const INK = {
  paper: "#f5f2ec",
  card: "#fffdf9",
  ink: "#211f1b",
  muted: "#635e54",
  line: "#e6e0d4",
  edge: "#d8d0c1",
  accent: "#b3391f",
  good: "#2f6b3c",
} as const;

/** Of the entries, in their order. The first two are the page's; each has a contrast of at least 4.5 on the card. */
export const PALETTE = [
  "#b3391f",
  "#3d6f8c",
  "#935d0d",
  "#6d4a8c",
  "#2f6b3c",
  "#b0446e",
  "#1f6f6b",
  "#4a453c",
] as const;

export const STYLE = `text{font-family:-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",system-ui,sans-serif;font-size:11px;font-variant-numeric:tabular-nums;fill:${INK.ink}}
.title{font-size:20px;font-weight:650;letter-spacing:-0.01em}
.head{font-size:13px;font-weight:650}
.label{font-size:12px;font-weight:600}
.entry{font-size:13px}
.muted{fill:${INK.muted}}
.note{fill:${INK.accent}}
.unit{font-size:11px;font-weight:400;fill:${INK.muted}}
polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}`;

type Attributes = Readonly<Record<string, string | number | undefined>>;

/** Children are markup. An attribute that is undefined is left out. */
export function element(name: string, attributes: Attributes, ...children: readonly string[]): string {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${typeof value === "number" ? round(value) : escapeMarkup(value!)}"`)
    .join("");
  return children.length === 0 ? `<${name}${written}/>` : `<${name}${written}>${children.join("")}</${name}>`;
}

export const words = (text: string, attributes: Attributes) => element("text", attributes, escapeText(text));

export const line = (x1: number, y1: number, x2: number, y2: number, attributes: Attributes) =>
  element("line", { x1, y1, x2, y2, ...attributes });

export const polyline = (points: readonly (readonly [number, number])[], attributes: Attributes) =>
  element("polyline", { points: points.map(([x, y]) => `${round(x)},${round(y)}`).join(" "), ...attributes });

const round = (value: number) => String(Math.round(value * 100) / 100);

const ESCAPES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

const escapeMarkup = (text: string) => text.replaceAll(/[&<>"]/g, (char) => ESCAPES[char]!);

/** Controls are shown, not obeyed; U+FFFE and U+FFFF may not stand in XML at all. */
export const escapeText = (text: string) => escapeMarkup(visible(text.replaceAll(/[\ufffe\uffff]/g, "\ufffd")));

/** About how wide a text is, in pixels; rather too wide than too narrow, since the reader's font is not known. */
export function widthOf(text: string, sizePx: number): number {
  let units = 0;
  for (const char of text) {
    if (/[ilj.,:;'|!·]/.test(char)) units += 0.3;
    else if (/[mwMW%—]/.test(char)) units += 0.9;
    else if (/[A-Z]/.test(char)) units += 0.7;
    else if (/[ frt\-()/[\]]/.test(char)) units += 0.37;
    else units += char.codePointAt(0)! < 0x2000 ? 0.57 : 1;
  }
  return units * sizePx;
}

/** Lines of whole words, each at most so wide. */
export function wrap(text: string, sizePx: number, widthPx: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && widthOf(longer, sizePx) <= widthPx) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** A text with its middle left out, if it is wider than that. */
export function shorten(text: string, sizePx: number, widthPx: number): string {
  if (widthOf(text, sizePx) <= widthPx) return text;
  const chars = [...text];
  let kept = chars.length;
  const cut = () =>
    `${chars.slice(0, Math.ceil(kept / 2)).join("")}…${chars.slice(chars.length - Math.floor(kept / 2)).join("")}`;
  while (kept > 2 && widthOf(cut(), sizePx) > widthPx) kept--;
  return cut();
}
