/** The type of one row of the table of metrics. */
export interface Metric {
  readonly unit: Unit;
  /** One sentence that says what the metric measures, and over which turns, episodes or time. */
  readonly help: string;
  /** A counter is a total since the run's start; a gauge is the value of one step. */
  readonly kind: "gauge" | "counter";
  /** The value depends on the wall clock, so it differs between runs of equal seeds. */
  readonly timed?: true;
  /** Every actor reports its own value. The page shows the value with the actor's name. */
  readonly perActor?: true;
  /** "env": the metric has a value over all envs, and one for each env of a mix. "k": the metric has only values for each k of pass@k. */
  readonly parts?: Part;
}

export type Part = "env" | "k";

type Count = "tokens" | "turns" | "actions" | "groups" | "episodes" | "updates" | "messages" | "bytes";
type Speed = "tokens/s" | "steps/s" | "bytes/s" | "updates/min";
/** A share is from 0 to 1, and a difference of shares from -1 to 1. `reward` means the env's own unit. `number` means no unit. */
export type Unit = "share" | "reward" | "nats" | "number" | Count | Speed | "seconds" | "milliseconds" | "joules";
