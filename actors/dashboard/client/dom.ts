/** Functions that the scripts of all pages share: they make elements, and keep choices in the page's address. */
import { percent, whole } from "../../number-text.ts";
import type { EventLine } from "./event-lines.ts";
import { visible } from "./text.ts";

export const byId = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Makes an element: `make("p", "note", "text")`, `make("li", "", child, child)`. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  element.append(...children);
  return element;
}

/** Writes a text only if it differs from the element's text, because a write disturbs screen readers and selections. */
export function put(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** @param title  what the button does, if the button's text does not say so */
export function button(text: string, onClick: () => void, title: string = text): HTMLButtonElement {
  const element = make("button", "", text);
  element.type = "button";
  if (title !== text) {
    element.title = title;
    element.setAttribute("aria-label", title);
  }
  element.addEventListener("click", onClick);
  return element;
}

export function selectOf(texts: readonly string[], onChange = (_index: number): void => {}): HTMLSelectElement {
  const select = make("select", "", ...texts.map((text) => make("option", "", text)));
  select.addEventListener("change", () => onChange(select.selectedIndex));
  return select;
}

export function eventRow({ event, count }: EventLine): HTMLLIElement {
  const { id, atMs, actor, level, kind, text } = event;
  const time = make("time", "", new Date(atMs).toLocaleTimeString("en-GB"));
  time.dateTime = new Date(atMs).toISOString();
  const source = level === "info" ? visible(actor) : `${visible(actor)} · ${level}`;
  const words = count === 1 ? visible(text) : `${visible(text)} (${whole(count)} times)`;
  const row = make("li", "", time, make("p", "", words), make("span", "note", `${source} · ${visible(kind)}`));
  row.dataset["id"] = String(id);
  row.dataset["level"] = level;
  return row;
}

/** Keeps a choice in the page's address, so that a person can share a view as a link. */
export function putInAddress(name: string, values: readonly string[]): void {
  const query = new URLSearchParams(location.search);
  query.delete(name);
  for (const value of values) query.append(name, value);
  history.replaceState(null, "", query.size === 0 ? location.pathname : `?${query}`);
}

export const inAddress = (name: string): string[] => new URLSearchParams(location.search).getAll(name);

/** A part of a time. `kind` is the style class that gives the color. */
interface Share {
  readonly text: string;
  readonly kind: string;
  readonly share: number;
}

/** Shares of a time: as a bar, and in words after `head`. The words leave out shares below half a percent. */
export function timeBar(parts: readonly Share[], head = ""): HTMLElement[] {
  const bar = make("div", "time");
  bar.setAttribute("aria-hidden", "true");
  for (const { share, kind } of parts) {
    const part = make("i", kind);
    part.style.width = `${share * 100}%`;
    bar.append(part);
  }
  const texts = parts.filter(({ share }) => share >= 0.005).map(({ share, text }) => `${text} ${percent(share, 0)}`);
  return [bar, make("p", "note", head + texts.join(" · "))];
}
