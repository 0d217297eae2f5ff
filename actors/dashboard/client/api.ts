/** Reads the run's API, at addresses relative to the page. The types of answers are those of the server's schemas. */
import type {
  ActorsAnswer,
  CostsAnswer,
  EpisodeAnswer,
  EpisodesAnswer,
  ErrorAnswer,
  EventsAnswer,
  MetricsAnswer,
  NamesAnswer,
  OtherMetricsAnswer,
  PlayAnswer,
  RatingsAnswer,
  RunAnswer,
  RunsAnswer,
  SetupAnswer,
} from "../answers.ts";

interface Answers {
  "api/run": RunAnswer;
  "api/actors": ActorsAnswer;
  "api/metrics": MetricsAnswer;
  "api/costs": CostsAnswer;
  "api/names": NamesAnswer;
  "api/events": EventsAnswer;
  "api/episodes": EpisodesAnswer;
  [episode: `api/episodes/${number}`]: EpisodeAnswer;
  "api/play": PlayAnswer;
  "api/ratings": RatingsAnswer;
  "api/setup": SetupAnswer;
  "api/runs": RunsAnswer;
  [metrics: `api/runs/${string}/metrics`]: OtherMetricsAnswer;
}

/** @throws {Error} with the server's message if the request failed. */
export async function read<P extends keyof Answers>(
  path: P,
  query: URLSearchParams | Readonly<Record<string, string | number>> = {},
): Promise<Answers[P]> {
  const response = await fetch(`${path}?${query instanceof URLSearchParams ? query : queryOf(query)}`);
  if (response.ok) return (await response.json()) as Answers[P];
  const { error } = (await response
    .json()
    .catch(() => ({ error: `${path} answered ${response.status}` }))) as ErrorAnswer;
  throw new Error(error);
}

const queryOf = (values: Readonly<Record<string, string | number>>) =>
  new URLSearchParams(Object.entries(values).map(([name, value]) => [name, String(value)]));
