/**
 * The list of episodes, and one of them turn by turn. Knows /api/episodes and the page's elements.
 *
 * - Everything that a model or an env wrote goes through `visible` into text nodes.
 * - New episodes are added on top; what a person reads stays where it is.
 */
import { blocksOf, cellKind, splitReply, visible } from "./text.ts";

const LISTED_MAX = 100;

const FILTERS = {
  all: { query: "", keeps: () => true },
  solved: { query: "success=true", keeps: ({ success }) => success === true },
  missed: { query: "success=false", keeps: ({ success }) => success === false },
  failed: { query: "status=envError", keeps: ({ status }) => status === "envError" },
};

const STOPS = {
  success: "solved",
  over: "game over",
  actions: "out of actions",
  turns: "out of turns",
  context: "out of context",
};

/** Make an element: `make("p", "note", "text")`, `make("li", "", child, child)`. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  element.append(...children);
  return element;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const outcomeText = ({ status, stop }) =>
  stop === null ? (status === "aborted" ? "aborted" : "env error") : STOPS[stop];
const outcomeKind = ({ success }) => (success === null ? "bad" : success ? "good" : "plain");

function boardOf(rows) {
  const board = make("div", "board");
  board.setAttribute("role", "img");
  board.setAttribute("aria-label", visible(`board: ${rows.map((row) => row.join("")).join(" / ")}`));
  for (const row of rows) {
    board.append(make("div", "", ...row.map((cell) => make("span", `cell ${cellKind(cell)}`, visible(cell)))));
  }
  return board;
}

const observationOf = (text) =>
  make(
    "div",
    "observation",
    ...blocksOf(text).map((block) =>
      block.kind === "board" ? boardOf(block.rows) : make("p", "said", visible(block.text)),
    ),
  );

function turnOf(turn, index) {
  const { thought, answer, raw } = splitReply(turn.reply);
  const reply = make("dl", "reply");
  const say = (term, text, kind) => reply.append(make("dt", "", term), make("dd", kind, visible(text)));
  if (thought !== null) say("Thought", thought, "thought");
  if (answer !== null) say("Answer", answer, "answer");
  if (raw !== null) say("Reply without an answer", raw === "" ? "(empty)" : raw, "raw");
  say("Played", turn.actions.length === 0 ? "nothing" : turn.actions.join(", "), "");
  const chips = make(
    "p",
    "chips",
    make("span", `chip ${turn.reward > 0 ? "good" : "plain"}`, `reward ${signed(turn.reward)}`),
  );
  if (turn.penalty !== 0) chips.append(make("span", "chip bad", `penalty ${signed(turn.penalty)}`));
  if (!turn.wellFormed) chips.append(make("span", "chip bad", "wrong form"));
  if (turn.cut) chips.append(make("span", "chip bad", "cut at the limit"));
  if (turn.actions.length > 0 && !turn.effective) chips.append(make("span", "chip plain", "no effect"));
  return make(
    "li",
    "turn",
    make("h4", "", `Turn ${index + 1}`),
    observationOf(turn.observation),
    make("div", "", reply, chips),
  );
}

function detailOf({ summary, row }) {
  const { ticket, outcome } = row;
  const facts = [
    `boards seed ${ticket.layoutSeed}`,
    summary.version === null ? "not played" : `policy version ${summary.version}`,
    summary.update === null
      ? ticket.purpose === "validate"
        ? "validation"
        : "not trained on"
      : `trained in update ${summary.update}`,
    ...(summary.advantage === null ? [] : [`advantage ${signed(summary.advantage)}`]),
    plural(summary.writtenTokens, "token"),
    summary.sampler,
  ];
  const head = make(
    "header",
    "",
    make(
      "h3",
      "",
      make("span", `chip ${outcomeKind(summary)}`, outcomeText(summary)),
      ` ${visible(ticket.env)}`,
      ...(summary.reward === null ? [] : [make("b", "", `reward ${signed(summary.reward)}`)]),
    ),
    make("p", "note", facts.join(" · ")),
  );
  if (!("turns" in outcome)) return [head, make("p", "said", visible(outcome.detail))];
  const last = make("li", "turn", make("h4", "", "End"), observationOf(outcome.finalObservation), make("div", ""));
  return [head, make("ol", "turns", ...outcome.turns.map(turnOf), last)];
}

export class Episodes {
  #list = document.getElementById("episode-list");
  #detail = document.getElementById("episode");
  #filter = FILTERS.all;
  #shown = null;
  /** Of two answers on their way, only the one asked for last is shown. */
  #asked = 0;

  constructor() {
    document.getElementById("filter").addEventListener("change", ({ target }) => {
      this.#filter = FILTERS[target.value];
      void this.load();
    });
    this.#list.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button !== null) void this.#open(Number(button.dataset.id));
    });
    this.#list.addEventListener("keydown", (event) => this.#move(event));
  }

  /** Read the list anew. */
  async load() {
    const asked = ++this.#asked;
    const answer = await fetch(`/api/episodes?limit=${LISTED_MAX}&${this.#filter.query}`);
    const { rows } = await answer.json();
    if (asked !== this.#asked) return;
    this.#list.replaceChildren(...rows.map((row) => this.#rowOf(row)));
    if (rows.length === 0) this.#list.append(make("li", "empty", "No such episode yet."));
    if (this.#shown === null && rows.length > 0) await this.#open(rows[0].id);
  }

  /** Newest first, as the stream sends them. */
  async take(episodes) {
    const news = episodes.filter((episode) => this.#filter.keeps(episode) && !this.#find(episode.id));
    if (news.length === 0) return;
    this.#list.querySelector(".empty")?.remove();
    // Adding above the view must not push what is in view; at the very top, new rows are wanted.
    const { scrollTop, scrollHeight } = this.#list;
    this.#list.prepend(...news.map((episode) => this.#rowOf(episode)));
    while (this.#list.children.length > LISTED_MAX) this.#list.lastElementChild.remove();
    if (scrollTop > 0) this.#list.scrollTop = scrollTop + this.#list.scrollHeight - scrollHeight;
    if (this.#shown === null) await this.#open(news[0].id);
  }

  #find(id) {
    return this.#list.querySelector(`button[data-id="${id}"]`);
  }

  #rowOf(episode) {
    const details = [
      episode.update === null && episode.purpose === "validate" ? "validation" : `version ${episode.version ?? "–"}`,
      plural(episode.turnCount, "turn"),
    ].join(" · ");
    const button = make(
      "button",
      "",
      make("span", `chip ${outcomeKind(episode)}`, outcomeText(episode)),
      make("span", "name", visible(episode.env)),
      make("span", "reward", episode.reward === null ? "–" : signed(episode.reward)),
      make("span", "note", details),
    );
    button.type = "button";
    button.dataset.id = episode.id;
    button.setAttribute("aria-pressed", String(episode.id === this.#shown));
    return make("li", "", button);
  }

  async #open(id) {
    this.#find(this.#shown)?.setAttribute("aria-pressed", "false");
    this.#shown = id;
    this.#find(id)?.setAttribute("aria-pressed", "true");
    const answer = await fetch(`/api/episodes/${id}`);
    if (!answer.ok || this.#shown !== id) return;
    this.#detail.replaceChildren(...detailOf(await answer.json()));
    this.#detail.scrollTop = 0;
  }

  #move(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const button = step && event.target.closest("li")?.[step]?.querySelector("button");
    if (!button) return;
    event.preventDefault();
    button.focus();
    button.click();
  }
}
