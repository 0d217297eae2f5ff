/**
 * Replays an episode in the page with the env's own code, action by action. A person can show a second replay beside it, of another episode
 * on the same board, or play on by hand. replay-code.ts plays the game and returns frames: the observation and the reward after each action.
 * This file shows the frames as elements.
 */
import { plural } from "../../number-text.ts";
import type { EpisodeAnswer, EpisodeSummary, PlayAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { observationOf, type Symbols, symbolsOf } from "./board.ts";
import { button, make, selectOf } from "./dom.ts";
import { isTyping } from "./live.ts";
import type { Frame, ManualGame, Recorded, Replay } from "./replay-code.ts";
import { signed, visible } from "./text.ts";

/** The bundle with the code of the envs, and the run's settings of the envs. */
export interface ReplayCode {
  readonly code: typeof import("./replay-code.ts");
  readonly play: PlayAnswer;
}

const PLAY_EVERY_MS = 600;
/** Maximum number of episodes on the same board that the player offers for comparison. */
const OTHERS_MAX = 50;
const ARROWS: Readonly<Record<string, string>> = {
  ArrowUp: "Up",
  ArrowDown: "Down",
  ArrowLeft: "Left",
  ArrowRight: "Right",
};

const titleOf = ({ version, success }: EpisodeSummary) => `version ${version} · ${success ? "solved" : "not solved"}`;

function frameText({ turn, action, reward, done, success }: Frame): string {
  const what = action === null ? "start" : `turn ${turn + 1}: ${action}`;
  return `${what} · reward ${signed(reward)}${done ? (success ? " · solved" : " · over") : ""}`;
}

/** One replay with its caption. */
class Pane {
  readonly element: HTMLElement;
  readonly frames: readonly Frame[];
  readonly #caption = make("p", "caption");
  readonly #board = make("div", "");
  readonly #symbols: Symbols;

  constructor(title: string, { frames, difference }: Replay, symbols: Symbols) {
    this.frames = frames;
    this.#symbols = symbols;
    const check =
      difference === null
        ? make("p", "note", "replayed here: the same as recorded")
        : make("p", "bad", visible(`the replay differs from the record: ${difference}`));
    this.element = make("div", "pane", make("h4", "", title), this.#board, this.#caption, check);
  }

  show(index: number): void {
    const frame = this.frames[Math.min(index, this.frames.length - 1)]!;
    this.#board.replaceChildren(observationOf(frame.observation, this.#symbols));
    this.#caption.textContent = visible(frameText(frame));
  }
}

export class Player {
  readonly element = make("section", "replay");
  readonly #replayCode: ReplayCode;
  readonly #episode: EpisodeAnswer;
  readonly #recorded: Recorded;
  readonly #panes = make("div", "panes");
  readonly #own: Pane;
  readonly #slider = make("input", "");
  readonly #position = make("output", "note");
  readonly #playButton: HTMLButtonElement;
  /** The replay of another episode on the same board, if the person has chosen one. */
  #other: Pane | null = null;
  /** Why the chosen episode cannot be shown beside this one, or "". */
  readonly #otherFault = make("span", "bad", "");
  /** Number of the latest choice of another episode. The player shows only the episode of that choice. */
  #choices = 0;
  #index = 0;
  #timer: ReturnType<typeof setInterval> | null = null;
  /** The game while a person plays by hand; otherwise null. */
  #manual: ManualGame | null = null;

  /** @throws {Error} if the env cannot be played here */
  constructor(replayCode: ReplayCode, episode: EpisodeAnswer, recorded: Recorded) {
    this.#replayCode = replayCode;
    this.#episode = episode;
    this.#recorded = recorded;
    this.#own = this.#paneOf(episode, recorded);
    this.element.setAttribute("aria-label", "Replay");
    this.#slider.type = "range";
    this.#slider.min = "0";
    this.#slider.setAttribute("aria-label", "Action");
    this.#slider.addEventListener("input", () => this.#go(Number(this.#slider.value)));
    this.#playButton = button("Play", () => this.#toggle());
    const controls = make(
      "div",
      "controls",
      button("⇤", () => this.#go(0), "To the start"),
      button("←", () => this.#go(this.#index - 1), "Previous action"),
      this.#playButton,
      button("→", () => this.#go(this.#index + 1), "Next action"),
      button("⇥", () => this.#go(this.#lastIndex), "To the end"),
      this.#slider,
      this.#position,
    );
    this.element.append(this.#panes, controls, make("div", "choices", this.#otherChoice(), this.#turnChoice()));
    this.#showReplay();
  }

  /** Handles a key that a person presses on the page. @returns whether the key was for the player */
  key(event: KeyboardEvent): boolean {
    // A radio button also uses the arrow keys and Space.
    const isOfField = isTyping(event) || (event.target as Element).matches("[type=radio]");
    if (isOfField && event.target !== this.#slider) return false;
    if (this.#manual !== null) return this.#manualKey(event.key);
    const { tagName } = event.target as Element;
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: this.#index - 1,
      ArrowRight: this.#index + 1,
      Home: 0,
      End: this.#lastIndex,
    };
    const index = moves[event.key];
    if (index !== undefined) this.#go(index);
    else if (event.key === " " && tagName !== "BUTTON" && tagName !== "SUMMARY") this.#toggle();
    else return false;
    return true;
  }

  get #lastIndex(): number {
    return Math.max(this.#own.frames.length, this.#other?.frames.length ?? 0) - 1;
  }

  #paneOf({ summary, row }: EpisodeAnswer, recorded: Recorded): Pane {
    const { code, play } = this.#replayCode;
    return new Pane(titleOf(summary), code.replay(row.ticket, recorded, play), symbolsOf(play, summary.env));
  }

  #showReplay(): void {
    this.#manual = null;
    this.#panes.replaceChildren(this.#own.element, ...(this.#other === null ? [] : [this.#other.element]));
    this.#slider.max = String(this.#lastIndex);
    this.#go(this.#index);
  }

  #go(index: number): void {
    if (this.#manual !== null) return;
    this.#index = Math.max(0, Math.min(index, this.#lastIndex));
    this.#own.show(this.#index);
    this.#other?.show(this.#index);
    this.#slider.value = String(this.#index);
    this.#position.textContent = `${this.#index} of ${this.#lastIndex}`;
    if (this.#index === this.#lastIndex) this.pause();
  }

  #toggle(): void {
    if (this.#manual !== null) return;
    if (this.#timer !== null) {
      this.pause();
      return;
    }
    if (this.#index === this.#lastIndex) this.#go(0);
    this.#timer = setInterval(() => this.#go(this.#index + 1), PLAY_EVERY_MS);
    this.#playButton.textContent = "Pause";
  }

  /** Pauses the replay. Call this function also before you remove the player from the page. */
  pause(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#playButton.textContent = "Play";
  }

  /** The choice of another episode. It is disabled until the page has read the other episodes on this board. */
  #otherChoice(): HTMLElement {
    let others: readonly EpisodeSummary[] = [];
    const select = selectOf(["none"], (index) => void this.#compare(others[index - 1] ?? null));
    select.disabled = true;
    const { env, layoutSeed } = this.#episode.row.ticket;
    void read("api/episodes", { env, layoutSeed, limit: OTHERS_MAX }).then(({ rows }) => {
      others = rows.filter(({ id, turnCount }) => id !== this.#episode.summary.id && turnCount > 0);
      for (const summary of others) {
        const purpose = summary.purpose === "validate" ? "validation" : "training";
        select.append(make("option", "", `${titleOf(summary)} · ${signed(summary.reward!)} · ${purpose}`));
      }
      select.disabled = others.length === 0;
      if (others.length === 0) select.options[0]!.textContent = "no other episode";
    });
    return make("label", "", "Compare on this board with: ", select, " ", this.#otherFault);
  }

  async #compare(summary: EpisodeSummary | null): Promise<void> {
    const choice = ++this.#choices;
    let pane: Pane | null = null;
    let fault = "";
    try {
      const other = summary && (await read(`api/episodes/${summary.id}`));
      if (other !== null && "turns" in other.row.outcome) pane = this.#paneOf(other, other.row.outcome);
    } catch (error) {
      fault = (error as Error).message;
    }
    if (choice !== this.#choices) return;
    this.#other = pane;
    this.#otherFault.textContent = visible(fault);
    this.#showReplay();
  }

  #turnChoice(): HTMLElement {
    const turns = selectOf(this.#recorded.turns.map((_, i) => `turn ${i + 1}`));
    const start = () => {
      const { code, play } = this.#replayCode;
      this.pause();
      this.#manual = new code.ManualGame(this.#episode.row.ticket, this.#recorded, turns.selectedIndex, play);
      this.#showManual(this.#manual, "");
      this.#panes.querySelector<HTMLElement>(".hand button, .hand input")?.focus();
    };
    return make(
      "label",
      "",
      "Play by hand from ",
      turns,
      " ",
      button("Take over", start, "Play by hand from this turn"),
    );
  }

  /** @param problem  why the game refused the last action, or "" */
  #showManual(game: ManualGame, problem: string): void {
    const { frame, actions, actionsLeft } = game;
    const pane = make(
      "div",
      "pane hand",
      make("h4", "", "you"),
      observationOf(frame.observation, symbolsOf(this.#replayCode.play, this.#episode.summary.env)),
      make("p", "caption", visible(`${frameText(frame)} · ${plural(actionsLeft, "action")} left`)),
      make("p", "bad", visible(problem)),
    );
    const act = (action: string) => this.#act(game, action);
    if (!frame.done && actionsLeft > 0) pane.append(actions === null ? textInput(act) : actionButtons(actions, act));
    pane.append(button("Back to the replay", () => this.#showReplay()));
    this.#panes.replaceChildren(this.#own.element, pane);
  }

  #act(game: ManualGame, action: string): void {
    let problem = "";
    try {
      game.play(action);
    } catch (error) {
      problem = (error as Error).message;
    }
    this.#showManual(game, problem);
    if (document.activeElement !== document.body) return;
    const same = [...this.#panes.querySelectorAll("button")].find(({ textContent }) => textContent === action);
    (same ?? this.#panes.querySelector<HTMLElement>(".hand input, .hand button"))?.focus();
  }

  #manualKey(key: string): boolean {
    const action = ARROWS[key];
    if (action === undefined || !this.#manual?.actions?.includes(action)) return false;
    this.#act(this.#manual, action);
    return true;
  }
}

const actionButtons = (actions: readonly string[], act: (action: string) => void) =>
  make("div", "moves", ...actions.map((name) => button(visible(name), () => act(name))));

function textInput(act: (action: string) => void): HTMLElement {
  const input = make("input", "");
  input.setAttribute("aria-label", "Your action");
  const form = make("form", "moves", input, make("button", "", "Play"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(input.value);
  });
  return form;
}
