/** The page about episodes: the list, and the open episode with its replay. */
import type { EpisodeAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { symbolsOf } from "./board.ts";
import { byId, make, selectOf } from "./dom.ts";
import { detailOf } from "./episode-detail.ts";
import { EpisodeList } from "./episode-list.ts";
import { GroupTable } from "./group-table.ts";
import { hasModifier, isTyping, start } from "./live.ts";
import { Player, type ReplayCode } from "./player.ts";
import { ratingForm } from "./ratings.ts";
import { visible } from "./text.ts";

const detail = byId("episode");
const list = new EpisodeList(open);
const groups = new GroupTable((id) => list.choose(id));
let openId: number | null = null;
let player: Player | null = null;

/** The bundle with the code of the envs; the server makes it from replay-code.ts. */
const REPLAY_CODE = "/assets/replay-code.js";
let loading: Promise<ReplayCode> | null = null;
const playing = read("api/play");

/** Loads the bundle when a replay is first needed. */
function loadReplayCode(): Promise<ReplayCode> {
  loading ??= Promise.all([import(REPLAY_CODE), playing]).then(([code, play]) => ({ code, play }));
  return loading;
}

/** The player and its choices, or why the episode cannot be replayed. */
async function replayOf(episode: EpisodeAnswer): Promise<{ player: Player | null; elements: HTMLElement[] }> {
  const { outcome } = episode.row;
  if (!("turns" in outcome)) return { player: null, elements: [] };
  try {
    const made = new Player(await loadReplayCode(), episode, outcome);
    return { player: made, elements: [made.element, tokenColors] };
  } catch (error) {
    const text = `Cannot replay this episode here: ${(error as Error).message}.`;
    return { player: null, elements: [make("p", "note", visible(text)), tokenColors] };
  }
}

/** One element for all episodes, so that the choice stays. */
const tokenColors = make(
  "label",
  "colors",
  "Color tokens by ",
  selectOf(["log-probability", "advantage"], (index) => {
    detail.dataset["colors"] = index === 0 ? "surprise" : "advantage";
  }),
);

async function open(id: number): Promise<void> {
  openId = id;
  try {
    const episode = await read(`api/episodes/${id}`);
    const symbols = symbolsOf(await playing.catch(() => null), episode.summary.env);
    const [replay, rating] = await Promise.all([replayOf(episode), ratingForm(episode)]);
    if (openId !== id) return;
    player?.close();
    player = replay.player;
    detail.replaceChildren(...detailOf(episode, symbols, ...replay.elements, rating));
    await groups.show(episode.summary);
  } catch (error) {
    if (openId === id) detail.replaceChildren(make("p", "empty", visible((error as Error).message)));
  }
  detail.scrollTop = 0;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !isTyping(event)) {
    event.preventDefault();
    document.querySelector<HTMLInputElement>("#filter [name=text]")!.focus();
  } else if (!hasModifier(event) && player?.key(event)) event.preventDefault();
});

await start(
  () => list.load(),
  ({ episodes }) => list.take(episodes),
);
