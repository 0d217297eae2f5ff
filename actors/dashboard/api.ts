/**
 * The API of a run's page: one table of routes with their schemas. The HTTP routes and the OpenAPI description come from this table.
 * This file reads the store, changes nothing, and handles no HTTP.
 */
import type { z } from "zod";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { isMetricName, metric } from "../metrics/metrics.ts";
import type { Store } from "../metrics-sink/store.ts";
import type { EpisodeRow } from "../protocol.ts";
import { costsOf } from "../record/costs.ts";
import { newestUpdate, seriesOf } from "../record/newest-update.ts";
import type { WrittenToken } from "./answers.ts";
import * as answers from "./answers.ts";
import { commonEnds, thin } from "./client/curve.ts";
import { overviewOf } from "./overview.ts";
import { EpisodeId, EpisodesQuery, EventsQuery, MetricsQuery, NoQuery, OtherMetricsQuery } from "./queries.ts";
import { readRatings } from "./ratings.ts";
import type { NearbyRuns } from "./runs.ts";
import { cursorText } from "./stream.ts";

export interface ApiContext {
  readonly store: Store;
  /** Each call reads the starts of the run. The config is that of the moment when this context was made. @throws {Error} if the starts cannot be read */
  readonly setup: () => answers.SetupAnswer;
  readonly play: answers.PlayAnswer;
  /** Tokenizer and chat template of this run's policy; null if unknown. */
  readonly dialogue: Dialogue | null;
  readonly nearby: NearbyRuns;
  readonly ratings: string;
}

/** The request is valid, but there is no answer. */
export class NoAnswer extends Error {
  override readonly name = "NoAnswer";
  readonly status: 404 | 503;

  constructor(status: 404 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

export interface ApiRoute {
  /** In OpenAPI's form: "/api/episodes/{id}". */
  readonly path: string;
  readonly summary: string;
  readonly query: z.ZodObject;
  readonly answer: z.ZodType;
  /** @param part  the text of the request's path in place of {…} in `path`. @throws {NoAnswer} */
  read(context: ApiContext, query: never, part: string): object;
}

/** Makes the compiler check that `read` fits the schemas of query and answer. */
function route<A extends z.ZodType, Q extends z.ZodObject = typeof NoQuery>(made: {
  readonly path: string;
  readonly summary: string;
  /** Left out: the route has no query parameters. */
  readonly query?: Q;
  readonly answer: A;
  read(context: ApiContext, query: z.output<Q>, part: string): z.output<A> & object;
}): ApiRoute {
  return { query: NoQuery, ...made };
}

export const API: readonly ApiRoute[] = [
  route({
    path: "/api/run",
    summary: "What the run is doing",
    answer: answers.RunAnswer,
    read({ store }) {
      const overview = overviewOf(store);
      if (overview === null) throw new NoAnswer(503, "no run has started here yet");
      return { ...overview, cursor: cursorText(store.cursor()) };
    },
  }),
  route({
    path: "/api/actors",
    summary: "All actors: what each does and measures",
    answer: answers.ActorsAnswer,
    read({ store }) {
      const { atMs, actors } = store.actors() ?? { atMs: null, actors: [] };
      return { atMs, actors: [...actors] };
    },
  }),
  route({
    path: "/api/metrics",
    summary: "Values of metrics by step, without updates that a roll-back discarded",
    query: MetricsQuery,
    answer: answers.MetricsAnswer,
    read: ({ store }, { names, since, points }) => ({
      cursor: store.cursor().points,
      series: seriesOf(store, names, since).map((series) => thinned(series, points)),
    }),
  }),
  route({
    path: "/api/costs",
    summary: "Tokens, actions, processor time and energy, in total and per percentage point of success gained",
    answer: answers.CostsAnswer,
    read: ({ store }) => costsOf((name) => store.series([name], 0), newestUpdate(store)),
  }),
  route({
    path: "/api/names",
    summary: "Metrics that this run has recorded, except metrics of single actors",
    answer: answers.NamesAnswer,
    read({ store }) {
      const names = new Set(store.latest().map(({ name }) => name));
      const rows = [...names].filter(isMetricName).map((name) => ({ name, ...metric(name) }));
      const shown = rows.filter(({ perActor }) => perActor !== true);
      return { metrics: shown.map(({ name, unit, help }) => ({ name, unit, help })) };
    },
  }),
  route({
    path: "/api/events",
    summary: "Events",
    query: EventsQuery,
    answer: answers.EventsAnswer,
    read: ({ store }, { kind, level, ...page }) => ({ events: store.events(page, { kind, level }) }),
  }),
  route({
    path: "/api/episodes",
    summary: "Episodes, filtered, in pages",
    query: EpisodesQuery,
    answer: answers.EpisodesAnswer,
    read: ({ store }, { before, limit, ...filter }) => store.episodes(filter, { before, limit }),
  }),
  route({
    path: "/api/episodes/{id}",
    summary: "One whole episode: ticket, turns, tokens, log-probabilities",
    answer: answers.EpisodeAnswer,
    read({ store, dialogue }, _, part) {
      const id = EpisodeId.safeParse(part);
      const found = id.success ? store.episode(id.data) : null;
      if (found === null) throw new NoAnswer(404, `no episode ${part}; /api/episodes lists them`);
      const { row } = found;
      return {
        ...found,
        prompts: dialogue && promptTexts(row, dialogue),
        written: dialogue && tokensByTurn(row, dialogue),
      };
    },
  }),
  route({
    path: "/api/play",
    summary: "Settings of the envs and rules of play, for replaying an episode",
    answer: answers.PlayAnswer,
    read: ({ play }) => play,
  }),
  route({
    path: "/api/setup",
    summary: "The run's config, and the command, commit and versions of each start",
    answer: answers.SetupAnswer,
    read: ({ setup }) => setup(),
  }),
  route({
    path: "/api/ratings",
    summary: "People's ratings of episodes and turns; a POST adds one",
    answer: answers.RatingsAnswer,
    read: ({ ratings }) => ({ ratings: readRatings(ratings) }),
  }),
  route({
    path: "/api/runs",
    summary: "Other runs in the same parent folder",
    answer: answers.RunsAnswer,
    read: ({ nearby }) => nearby.list(),
  }),
  route({
    path: "/api/runs/{name}/metrics",
    summary: "Values of metrics of another run",
    query: OtherMetricsQuery,
    answer: answers.OtherMetricsAnswer,
    read({ nearby }, { names, points }, name) {
      const series = nearby.series(name, names);
      if (series === null) throw new NoAnswer(404, `no run ${name} in the same parent folder; /api/runs lists them`);
      return { series: series.map((one) => thinned(one, points)) };
    },
  }),
];

function thinned(series: answers.Series, points: number | undefined): answers.Series {
  const { steps, values } = series;
  const kept = points === undefined ? null : thin(steps, values, points, commonEnds(steps.at(-1)!));
  if (kept === null) return series;
  return { ...series, steps: kept.map((i) => steps[i]!), values: kept.map((i) => values[i]!) };
}

/** `replyText` puts this prefix before the text of the tokens. The tokens here are no whole reply, so `textOfTokens` removes the prefix. */
const PREFIX = "<answer>";

/** The tokens that the policy wrote, one list for each turn; null if the episode has no trajectory. */
function tokensByTurn(
  { outcome, advantage, tokenAdvantages }: EpisodeRow,
  dialogue: Dialogue,
): WrittenToken[][] | null {
  if (!("trajectory" in outcome)) return null;
  const { tokens, written, logProbs, turns } = outcome.trajectory;
  let at = 0;
  let count = 0;
  return turns.map(({ end }) => {
    const list: WrittenToken[] = [];
    for (; at <= end; at++) {
      if (written[at] !== 1) continue;
      const own = tokenAdvantages?.[count++] ?? advantage;
      list.push({ text: textOf(dialogue, tokens[at]!), logProb: logProbs[at]!, advantage: own });
    }
    return list;
  });
}

/** The new prompt text before each reply, or the whole context that the turn begins, with the marks of the chat template; null if not played. */
function promptTexts({ outcome }: EpisodeRow, dialogue: Dialogue): string[] | null {
  if (!("trajectory" in outcome)) return null;
  const { tokens, written, turns } = outcome.trajectory;
  return turns.map(({ end }, turn) => {
    const start = turn === 0 ? 0 : turns[turn - 1]!.end + 1;
    const prompt = tokens.subarray(start, end + 1).filter((_, i) => written[start + i] !== 1);
    return textOfTokens(dialogue, prompt);
  });
}

/** The text of one token. A token that ends a reply has no text, so the page shows a mark. */
function textOf(dialogue: Dialogue, token: number): string {
  if (dialogue.stops.includes(token)) return "⏎";
  return textOfTokens(dialogue, [token]);
}

const textOfTokens = (dialogue: Dialogue, tokens: Parameters<Dialogue["replyText"]>[0]): string =>
  dialogue.replyText(tokens, PREFIX).slice(PREFIX.length);
