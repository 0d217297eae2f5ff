/**
 * Makes elements of an episode: the turns, the tokens of the replies in color, and the form for ratings. All text of a model or an env goes
 * through `visible` into text nodes.
 */
import { plural } from "../../number-text.ts";
import type { EpisodeAnswer, EpisodeSummary, WrittenToken } from "../answers.ts";
import { read } from "./api.ts";
import { observationOf, type Symbols } from "./board.ts";
import { make, selectOf } from "./dom.ts";
import { signed, splitReply, visible } from "./text.ts";

type Turn = Extract<EpisodeAnswer["row"]["outcome"], { turns: unknown }>["turns"][number];

const STOPS = {
  success: "solved",
  over: "game over",
  actions: "out of actions",
  turns: "out of turns",
  context: "context full",
} as const;

export function outcomeChip({ status, stop, success }: EpisodeSummary): HTMLElement {
  const text = stop === null ? (status === "aborted" ? "aborted" : "env error") : STOPS[stop];
  return make("span", `chip ${success === null ? "bad" : success ? "good" : "plain"}`, text);
}

function chipsOf(turn: Turn): HTMLElement {
  const chip = (kind: string, text: string) => make("span", `chip ${kind}`, text);
  const chips = [chip(turn.reward > 0 ? "good" : "plain", `reward ${signed(turn.reward)}`)];
  if (turn.penalty !== 0) chips.push(chip("bad", `penalty ${signed(turn.penalty)}`));
  if (!turn.wellFormed) chips.push(chip("bad", "malformed"));
  if (turn.cut) chips.push(chip("bad", "cut at the token limit"));
  if (turn.dropped > 0) chips.push(chip("plain", `${plural(turn.dropped, "turn")} dropped from the context`));
  if (turn.actions.length > 0 && !turn.effective) chips.push(chip("plain", "no effect"));
  return make("p", "chips", ...chips);
}

function turnOf(
  turn: Turn,
  index: number,
  observation: HTMLElement,
  prompt: string | null,
  tokens: readonly WrittenToken[] | null,
): HTMLElement {
  const { thought, answer } = splitReply(turn.reply);
  const reply = make("dl", "reply");
  const add = (term: string, text: string, kind: string) =>
    reply.append(make("dt", "", term), make("dd", kind, visible(text)));
  if (thought !== null) add("Thought", thought || "(empty)", "thought");
  if (answer !== null) add("Answer", answer, "answer");
  else add("Reply without an answer", turn.reply || "(empty)", "raw");
  add("Actions", turn.actions.length === 0 ? "none" : turn.actions.join(", "), "");
  const parts = [reply, chipsOf(turn)];
  if (prompt !== null) {
    parts.push(make("details", "", make("summary", "", "Prompt"), make("p", "tokens", visible(prompt))));
  }
  if (tokens !== null) {
    parts.push(
      make(
        "details",
        "",
        make("summary", "", plural(tokens.length, "token")),
        make("p", "tokens", ...tokens.map(tokenOf)),
      ),
    );
  }
  return turnRow(`Turn ${index + 1}`, observation, parts);
}

const turnRow = (title: string, observation: HTMLElement, parts: readonly HTMLElement[]) =>
  make("li", "turn", make("h4", "", title), observation, make("div", "", ...parts));

function factsOf({ summary, row }: EpisodeAnswer): string[] {
  const { layoutSeed, purpose } = row.ticket;
  const untrained = purpose === "validate" ? "validation" : "not trained on";
  return [
    `board seed ${layoutSeed}`,
    summary.version === null ? "not played" : `policy version ${summary.version}`,
    summary.update === null ? untrained : `trained in update ${summary.update}`,
    ...(summary.advantage === null ? [] : [`advantage ${signed(summary.advantage)}`]),
    plural(summary.writtenTokens, "token"),
    summary.sampler,
  ];
}

/** @param symbols  the symbols of the episode's env. @param between  elements between the head and the turns */
export function detailOf(episode: EpisodeAnswer, symbols: Symbols, ...between: readonly HTMLElement[]): HTMLElement[] {
  const { summary, row, prompts, written } = episode;
  const { outcome } = row;
  const title = make("h3", "", outcomeChip(summary), ` ${visible(summary.env)}`);
  if (summary.reward !== null) title.append(make("b", "", `reward ${signed(summary.reward)}`));
  const head = make("header", "", title, make("p", "note", visible(factsOf(episode).join(" · "))));
  if (!("turns" in outcome)) return [head, make("p", "said", visible(outcome.detail))];
  const seen = (observation: string) => observationOf(observation, symbols);
  const turns = outcome.turns.map((turn, i) =>
    turnOf(turn, i, seen(turn.observation), prompts?.[i] ?? null, written?.[i] ?? null),
  );
  return [head, ...between, make("ol", "turns", ...turns, turnRow("End", seen(outcome.finalObservation), []))];
}

/** The highest color level. The style sheet makes a color stronger in proportion to the level. */
const LEVELS = 5;
/** Each of the `LEVELS` color levels covers an equal part of this absolute advantage. A larger advantage has the highest level. */
const ADVANTAGE_MAX = 2;

/** The color level: from 0 for a probability above 67 % to `LEVELS` for a probability below 2.7 %. */
const surpriseLevel = (logProb: number) => Math.min(LEVELS, Math.floor((-logProb * LEVELS) / 4 + 0.5));

/** A token of a reply in color. Color is never the only sign: each token has its numbers as a title, and unlikely tokens are underlined. */
function tokenOf({ text, logProb, advantage }: WrittenToken): HTMLElement {
  const token = make("span", "token", visible(text));
  const probability = `${(100 * Math.exp(logProb)).toFixed(1)} %, log-probability ${logProb.toFixed(3)}`;
  token.title = advantage === null ? probability : `${probability}; advantage ${signed(advantage)}`;
  const surprise = surpriseLevel(logProb);
  const strength = Math.min(LEVELS, Math.ceil((Math.abs(advantage ?? 0) * LEVELS) / ADVANTAGE_MAX));
  token.style.setProperty("--surprise", String(surprise));
  token.style.setProperty("--advantage", String(strength));
  token.classList.toggle("unlikely", surprise === LEVELS - 1);
  token.classList.toggle("surprising", surprise === LEVELS);
  token.classList.toggle("worse", (advantage ?? 0) < 0);
  return token;
}

const WHOLE = "the whole episode";

/** A form in which a person rates an episode or one of its turns. Below the form are the ratings so far. */
export async function ratingForm({ summary, row }: EpisodeAnswer): Promise<HTMLElement> {
  const turns = "turns" in row.outcome ? row.outcome.turns : [];
  const turn = selectOf([WHOLE, ...turns.map((_, i) => `turn ${i + 1}`)]);
  const score = selectOf(["no score", "1", "2", "3", "4", "5"]);
  const note = make("textarea", "");
  note.maxLength = 2000;
  note.rows = 2;
  const answer = make("p", "note", "");
  answer.setAttribute("role", "status");
  const given = make("ul", "ratings");
  const show = async () => given.replaceChildren(...(await ratingsOf(summary.id)));
  const download = make("a", "", "Download all ratings");
  download.href = "api/ratings";
  download.download = "ratings.json";
  const save = make("button", "", "Save");
  const form = make(
    "form",
    "rating",
    make("label", "", "Rate ", turn),
    make("label", "", " from 1 (bad) to 5 (good): ", score),
    make("label", "", "Note ", note),
    save,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    const body = JSON.stringify({
      id: summary.id,
      turn: turn.selectedIndex || null,
      score: score.selectedIndex || null,
      note: note.value,
    });
    const headers = { "Content-Type": "application/json" };
    try {
      const response = await fetch("api/ratings", { method: "POST", headers, body });
      answer.textContent = response.ok ? "saved" : visible(((await response.json()) as { error: string }).error);
      await show();
    } catch (error) {
      answer.textContent = visible((error as Error).message);
    }
    save.disabled = false;
  });
  // If the file of ratings is damaged, the page still shows the episode.
  await show().catch((error: Error) => {
    answer.textContent = visible(error.message);
  });
  const head = make("summary", "", "Rate this episode");
  const box = make("details", "rate", head, form, answer, given, make("p", "note", download));
  box.open = given.childElementCount > 0 || answer.textContent !== "";
  return box;
}

async function ratingsOf(id: number): Promise<HTMLElement[]> {
  const { ratings } = await read("api/ratings");
  return ratings
    .filter((rating) => rating.id === id)
    .map(({ turn, score, note }) => {
      const where = turn === null ? WHOLE : `turn ${turn}`;
      return make("li", "", visible(`${where}: ${score === null ? "" : `${score} of 5`} ${note}`));
    });
}
