/** Elements and formatted numbers, as all scripts of the page make them. */
import type { StoredEvent } from "../answers.ts";
import { visible } from "./text.ts";

export const byId = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Make an element: `make("p", "note", "text")`, `make("li", "", child, child)`. */
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

/** Write a text only if it changed, so that screen readers and selections are not disturbed. */
export function put(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** @param title  what the button does, if its text does not say it */
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

/** A select with one option per text. */
export function selectOf(texts: readonly string[], onChange: (index: number) => void): HTMLSelectElement {
  const select = make("select", "", ...texts.map((text) => make("option", "", text)));
  select.addEventListener("change", () => onChange(select.selectedIndex));
  return select;
}

export const whole = (value: number): string => Math.round(value).toLocaleString("en");
export const signed = (value: number): string => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
export const plural = (count: number, word: string): string => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

/** 1234 is "1.2 kB". */
export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value.toFixed(unit === 0 || value >= 99.5 ? 0 : 1)} ${units[unit]}`;
}

/** One row of a list of events. */
export function eventRow({ id, atMs, actor, level, kind, text }: StoredEvent): HTMLLIElement {
  const time = make("time", "", new Date(atMs).toLocaleTimeString("en-GB"));
  time.dateTime = new Date(atMs).toISOString();
  const source = level === "info" ? visible(actor) : `${visible(actor)} · ${level}`;
  const row = make("li", "", time, make("p", "", visible(text)), make("span", "note", `${source} · ${visible(kind)}`));
  row.dataset["id"] = String(id);
  row.dataset["level"] = level;
  return row;
}

/** Put new rows on top of a list, newest first, and keep at most `rowsMax`. */
export function prepend(list: HTMLElement, rows: readonly HTMLElement[], rowsMax: number): void {
  list.prepend(...rows.filter((row) => list.querySelector(`[data-id="${row.dataset["id"]}"]`) === null));
  while (list.children.length > rowsMax) list.lastElementChild!.remove();
}
