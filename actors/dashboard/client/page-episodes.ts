/** The page about episodes: the list, the table of an update's groups, and the open episode with its replay. */
import { plural } from "../../number-text.ts";
import type { EpisodeAnswer, EpisodeSummary, EpisodesAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { symbolsOf } from "./board.ts";
import { button, byId, make, put, selectOf } from "./dom.ts";
import { detailOf, ratingForm } from "./episode-detail.ts";
import { EpisodeList } from "./episode-list.ts";
import { hasModifier, isTyping, start } from "./live.ts";
import { Player, type ReplayCode } from "./player.ts";
import { signed, visible } from "./text.ts";

/** Maximum number of episodes of one request. */
const PAGE_ROWS = 200;
const TABLE_ROWS_MAX = 4000;

/** "u12" for the episode "u12.g0.m3". */
const batchOf = ({ episode }: EpisodeSummary): string => episode.split(".")[0]!;

/** The episodes that have the batch and the policy version of `one`. */
async function episodesOf(one: EpisodeSummary): Promise<EpisodeSummary[]> {
  const found: EpisodeSummary[] = [];
  let before: number | null = null;
  do {
    const query: Record<string, string | number> = { purpose: "train", limit: PAGE_ROWS };
    if (one.version !== null) query["version"] = one.version;
    if (before !== null) query["before"] = before;
    const { rows, next }: EpisodesAnswer = await read("api/episodes", query);
    found.push(...rows.filter((row) => batchOf(row) === batchOf(one)));
    before = next;
  } while (before !== null && found.length < TABLE_ROWS_MAX);
  return found;
}

/** Mean and sample standard deviation of the rewards. */
function spreadOf(episodes: readonly EpisodeSummary[]): string {
  const rewards = episodes.flatMap(({ reward }) => reward ?? []);
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  const squareSum = rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0);
  if (rewards.length < 2) return plural(rewards.length, "reward");
  return `${signed(mean)} ± ${Math.sqrt(squareSum / (rewards.length - 1)).toFixed(2)}`;
}

const detail = byId("episode");
const list = new EpisodeList(open);
let openId: number | null = null;
let player: Player | null = null;

/** Address of the envs' code, which the server bundles from replay-code.ts. */
const REPLAY_CODE = "/assets/replay-code.js";
let loading: Promise<ReplayCode> | null = null;
const playing = read("api/play");

function loadReplayCode(): Promise<ReplayCode> {
  loading ??= Promise.all([import(REPLAY_CODE), playing])
    .then(([code, play]) => ({ code, play }))
    .catch((error) => {
      loading = null;
      throw error;
    });
  return loading;
}

/** The player of an episode, and the elements to show. If the episode cannot be replayed, the elements say why. */
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

/** All episodes share this element, so that the user's choice stays when another episode opens. */
const tokenColors = make(
  "label",
  "colors",
  "Color tokens by ",
  selectOf(["log-probability", "advantage"], (index) => {
    detail.dataset["colors"] = index === 0 ? "surprise" : "advantage";
  }),
);

const groupsCard = byId("groups");
/** The batch and the policy version of the table of groups; "" if the page could not read them. */
let shownGroups = "";

/** Shows the rewards of an update's episodes: a row for each group, a column for each member. Hides the table for a validation episode. */
async function showGroups(one: EpisodeSummary): Promise<void> {
  groupsCard.hidden = one.purpose !== "train";
  if (groupsCard.hidden) return;
  const shown = `${batchOf(one)} ${one.version}`;
  if (shown !== shownGroups) {
    shownGroups = shown;
    const rows = await episodesOf(one).catch((error) => {
      if (shown === shownGroups) shownGroups = "";
      throw error;
    });
    if (shown !== shownGroups) return;
    put(byId("groups-title"), `Groups of ${visible(batchOf(one))}, reward of each member`);
    byId("groups-table").replaceChildren(groupTable(rows));
  }
  for (const cell of groupsCard.querySelectorAll<HTMLElement>("button"))
    cell.setAttribute("aria-pressed", String(cell.dataset["id"] === String(one.id)));
}

function groupTable(rows: readonly EpisodeSummary[]): HTMLTableElement {
  const groups = [...Map.groupBy(rows, ({ group }) => group)].sort(([a], [b]) => a - b);
  const members = [...new Set(rows.map(({ member }) => member))].sort((a, b) => a - b);
  const heads = ["group", "board", "mean ± std", ...members.map(String)].map((text) => make("th", "", text));
  const body = groups.map(([group, episodes]) => {
    const isTrained = episodes.some(({ advantage }) => advantage !== null);
    return make(
      "tr",
      "",
      make("th", "", isTrained ? `${group}` : `${group} (not trained on)`),
      make("td", "", `${visible(episodes[0]!.env)} ${episodes[0]!.layoutSeed}`),
      make("td", "", spreadOf(episodes)),
      ...members.map((member) => groupCell(episodes.find((episode) => episode.member === member))),
    );
  });
  return make("table", "", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...body));
}

function groupCell(episode: EpisodeSummary | undefined): HTMLTableCellElement {
  if (episode === undefined) return make("td", "");
  const { id, reward, success, status } = episode;
  const cell = button(reward === null ? visible(status) : signed(reward), () => list.choose(id));
  cell.className = success === true ? "chip good" : "chip";
  cell.dataset["id"] = String(id);
  return make("td", "", cell);
}

async function open(id: number): Promise<void> {
  openId = id;
  try {
    const episode = await read(`api/episodes/${id}`);
    const symbols = symbolsOf(await playing.catch(() => null), episode.summary.env);
    const [replay, rating] = await Promise.all([replayOf(episode), ratingForm(episode)]);
    if (openId !== id) return;
    player?.pause();
    player = replay.player;
    detail.replaceChildren(...detailOf(episode, symbols, ...replay.elements, rating));
    await showGroups(episode.summary);
  } catch (error) {
    if (openId === id) {
      player?.pause();
      player = null;
      detail.replaceChildren(make("p", "empty", visible((error as Error).message)));
    }
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
