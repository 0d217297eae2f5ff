/** Reads the run's API, at addresses relative to the page. The types of the answers come from the server's schemas. */
import type * as answers from "../answers.ts";

interface Answers {
  "api/run": answers.RunAnswer;
  "api/actors": answers.ActorsAnswer;
  "api/metrics": answers.MetricsAnswer;
  "api/costs": answers.CostsAnswer;
  "api/names": answers.NamesAnswer;
  "api/events": answers.EventsAnswer;
  "api/episodes": answers.EpisodesAnswer;
  [episode: `api/episodes/${number}`]: answers.EpisodeAnswer;
  "api/play": answers.PlayAnswer;
  "api/ratings": answers.RatingsAnswer;
  "api/setup": answers.SetupAnswer;
  "api/runs": answers.RunsAnswer;
  [metrics: `api/runs/${string}/metrics`]: answers.OtherMetricsAnswer;
}

/** @throws {Error} with the server's message if the request failed. */
export async function read<P extends keyof Answers>(
  path: P,
  query: Readonly<Record<string, string | number>> = {},
): Promise<Answers[P]> {
  // URLSearchParams writes a number as text, which its type does not say.
  const response = await fetch(`${path}?${new URLSearchParams(query as Record<string, string>)}`);
  if (response.ok) return (await response.json()) as Answers[P];
  const { error } = (await response
    .json()
    .catch(() => ({ error: `${path} answered ${response.status}` }))) as answers.ErrorAnswer;
  throw new Error(error);
}
