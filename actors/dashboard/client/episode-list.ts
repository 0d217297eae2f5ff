/**
 * The list of episodes: its filters, its pages, and the open episode.
 *
 * - The page's address holds the filters and the open episode, so that a person can share a view as a link.
 * - New episodes appear only while the top of the first page is in view. Otherwise the list does not move.
 */
import { plural } from "../../number-text.ts";
import type { EpisodeSummary } from "../answers.ts";
import { read } from "./api.ts";
import { byId, make, put } from "./dom.ts";
import { outcomeChip } from "./episode-detail.ts";
import { signed, visible } from "./text.ts";

const PAGE_ROWS = 50;
/** Minimum time between two reads of the first page while new episodes arrive. */
const RELOAD_AFTER_MS = 1000;

/** The query of each choice of the filter "Outcome"; the choice "all" is no filter. */
const OUTCOMES: Readonly<Record<string, readonly [name: string, value: string]>> = {
  solved: ["success", "true"],
  unsolved: ["success", "false"],
  failed: ["failed", "true"],
};

export class EpisodeList {
  readonly #list = byId("episode-list");
  readonly #form = byId<HTMLFormElement>("filter");
  readonly #older = byId<HTMLButtonElement>("older");
  readonly #newer = byId<HTMLButtonElement>("newer");
  readonly #note = byId("list-note");
  readonly #open: (id: number) => void;
  #openId: number | null = null;
  /** The query parameter `before` of each page so far. The last value belongs to the page in view. */
  #pages: (number | null)[] = [null];
  /** The query parameter `before` of the next page; null on the last page, and until the page in view has been read. */
  #next: number | null = null;
  /** Number of the latest request. The list shows only the answer to that request. */
  #requests = 0;
  #reload: ReturnType<typeof setTimeout> | null = null;
  #newCount = 0;

  /** @param open  shows the episode of this id */
  constructor(open: (id: number) => void) {
    this.#open = open;
    this.#fillFilter();
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#form.addEventListener("input", () => this.#filterChanged());
    this.#form.addEventListener("reset", () => setTimeout(() => this.#filterChanged()));
    this.#older.addEventListener("click", () => {
      if (this.#next !== null) this.#goTo([...this.#pages, this.#next]);
    });
    this.#newer.addEventListener("click", () => {
      if (this.#pages.length > 1) this.#goTo(this.#pages.slice(0, -1));
    });
    this.#list.addEventListener("click", ({ target }) => {
      const button = (target as Element).closest("button");
      if (button !== null) this.choose(Number(button.dataset["id"]));
    });
    this.#list.addEventListener("keydown", (event) => this.#moveFocus(event));
    this.#list.addEventListener("scroll", () => {
      if (this.#newCount > 0 && this.#isAtTop) void this.load();
    });
  }

  async load(): Promise<void> {
    const request = ++this.#requests;
    const before = this.#pages.at(-1)!;
    const query = { ...this.#query(), limit: PAGE_ROWS };
    try {
      const { rows, next } = await read("api/episodes", before === null ? query : { ...query, before });
      if (request === this.#requests) this.#show(rows, next);
    } catch (error) {
      put(this.#note, visible((error as Error).message));
    }
  }

  take(episodes: readonly EpisodeSummary[]): void {
    if (episodes.length === 0) return;
    this.#newCount += episodes.length;
    const place = this.#pages.length === 1 ? "scroll up to see them" : "on the first page";
    if (!this.#isAtTop) put(this.#note, `${plural(this.#newCount, "newer episode")}; ${place}`);
    this.#reload ??= setTimeout(
      () => {
        this.#reload = null;
        if (this.#isAtTop) void this.load();
      },
      this.#list.children.length < 5 ? 0 : RELOAD_AFTER_MS,
    );
  }

  get #isAtTop(): boolean {
    return this.#pages.length === 1 && this.#list.scrollTop === 0;
  }

  #show(rows: readonly EpisodeSummary[], next: number | null): void {
    this.#next = next;
    this.#newCount = 0;
    const focused = (document.activeElement as HTMLElement | null)?.dataset["id"];
    this.#list.replaceChildren(...rows.map((row) => this.#rowOf(row)));
    if (focused !== undefined) this.#buttonOf(focused)?.focus({ preventScroll: true });
    if (rows.length === 0) this.#list.append(make("li", "empty", this.#emptyText()));
    this.#older.disabled = next === null;
    this.#newer.disabled = this.#pages.length === 1;
    put(this.#note, this.#pages.length === 1 ? "newest first" : `page ${this.#pages.length}, newest first`);
    if (this.#openId !== null) return;
    const id = Number(new URLSearchParams(location.search).get("id")) || rows[0]?.id;
    if (id !== undefined) this.choose(id);
  }

  #query(): Record<string, string> {
    const filters = this.#filters();
    return Object.fromEntries(filters.map(([name, value]) => (name === "outcome" ? OUTCOMES[value]! : [name, value])));
  }

  /** The fields of the filter that have a value. */
  #filters(): [string, string][] {
    return [...new FormData(this.#form)]
      .map(([name, value]): [string, string] => [name, String(value).trim()])
      .filter(([name, value]) => value !== "" && !(name === "outcome" && value === "all"));
  }

  #fillFilter(): void {
    for (const [name, value] of new URLSearchParams(location.search)) {
      const field = this.#form.elements.namedItem(name);
      if (field !== null) (field as RadioNodeList | HTMLInputElement).value = value;
    }
  }

  #writeAddress(): void {
    const query = new URLSearchParams(this.#filters());
    if (this.#openId !== null) query.set("id", String(this.#openId));
    history.replaceState(null, "", query.size === 0 ? location.pathname : `?${query}`);
  }

  #filterChanged(): void {
    this.#writeAddress();
    this.#goTo([null]);
  }

  #goTo(pages: (number | null)[]): void {
    this.#pages = pages;
    this.#next = null;
    this.#list.scrollTop = 0;
    void this.load();
  }

  #emptyText(): string {
    return this.#filters().length > 0 ? "No episode matches. Clear the filter to see all episodes." : "No episode yet.";
  }

  #buttonOf(id: number | string): HTMLButtonElement | null {
    return this.#list.querySelector(`button[data-id="${id}"]`);
  }

  #rowOf(episode: EpisodeSummary): HTMLElement {
    const { id, env, update, purpose, version, turnCount, reward } = episode;
    const what = update === null && purpose === "validate" ? "validation" : `version ${version ?? "–"}`;
    const button = make(
      "button",
      "",
      outcomeChip(episode),
      make("span", "name", visible(env)),
      make("span", "reward", reward === null ? "–" : signed(reward)),
      make("span", "note", `${what} · ${plural(turnCount, "turn")}`),
    );
    button.type = "button";
    button.dataset["id"] = String(id);
    button.setAttribute("aria-pressed", String(id === this.#openId));
    return make("li", "", button);
  }

  choose(id: number): void {
    if (this.#openId !== null) this.#buttonOf(this.#openId)?.setAttribute("aria-pressed", "false");
    this.#openId = id;
    this.#buttonOf(id)?.setAttribute("aria-pressed", "true");
    this.#writeAddress();
    this.#open(id);
  }

  #moveFocus(event: KeyboardEvent): void {
    const row = (event.target as Element).closest("li");
    const siblings: Readonly<Record<string, Element | null | undefined>> = {
      ArrowDown: row?.nextElementSibling,
      ArrowUp: row?.previousElementSibling,
    };
    const button = siblings[event.key]?.querySelector("button");
    if (!button) return;
    event.preventDefault();
    button.focus();
    button.click();
  }
}
