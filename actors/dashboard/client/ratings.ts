/** The form that rates and annotates the open episode, and the ratings that people have given it. */
import type { EpisodeAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { make, selectOf } from "./dom.ts";
import { visible } from "./text.ts";

const WHOLE = "the whole episode";

/** The form for one episode, and below the form the episode's ratings. */
export async function ratingForm({ summary, row }: EpisodeAnswer): Promise<HTMLElement> {
  const turns = "turns" in row.outcome ? row.outcome.turns.length : 0;
  const turn = selectOf([WHOLE, ...turnNames(turns)]);
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
    make("label", "", " from 1, bad, to 5, good: ", score),
    make("label", "", "Note ", note),
    save,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    const body = JSON.stringify({
      id: summary.id,
      turn: turn.selectedIndex === 0 ? null : turn.selectedIndex,
      score: score.selectedIndex === 0 ? null : score.selectedIndex,
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
  // A damaged file of ratings does not hide the episode.
  await show().catch((error: Error) => {
    answer.textContent = visible(error.message);
  });
  const box = make(
    "details",
    "rate",
    make("summary", "", "Rate this episode"),
    form,
    answer,
    given,
    make("p", "note", download),
  );
  box.open = given.childElementCount > 0 || answer.textContent !== "";
  return box;
}

const turnNames = (count: number) => Array.from({ length: count }, (_, i) => `turn ${i + 1}`);

async function ratingsOf(id: number): Promise<HTMLElement[]> {
  const { ratings } = await read("api/ratings");
  return ratings
    .filter((rating) => rating.id === id)
    .map(({ turn, score, note }) => {
      const where = turn === null ? WHOLE : `turn ${turn}`;
      return make("li", "", visible(`${where}: ${score === null ? "" : `${score} of 5`} ${note}`));
    });
}
