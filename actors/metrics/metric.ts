/** The type of one row of the table of metrics. */
export interface Metric {
  readonly unit: Unit;
  /** One sentence: what is measured, over what. */
  readonly help: string;
  /** A counter is a running total of the run; a gauge is the value of that step. */
  readonly kind: "gauge" | "counter";
  /** Depends on the wall clock, so it differs between runs of equal seeds. */
  readonly timed?: true;
  /** Every actor reports its own value; shown with the actor's name. */
  readonly perActor?: true;
  /** The metric has values per env of a mix beside its own; or only values per k, as pass@k. */
  readonly parts?: Part;
}

export type Part = "env" | "k";

/** A share is 0 to 1, a difference of shares -1 to 1. `reward` is the env's own unit. `number` has no unit. */
export type Unit =
  | "share"
  | "reward"
  | "nats"
  | "number"
  | "tokens"
  | "turns"
  | "actions"
  | "groups"
  | "episodes"
  | "updates"
  | "messages"
  | "tokens/s"
  | "steps/s"
  | "bytes/s"
  | "updates/min"
  | "seconds"
  | "milliseconds"
  | "bytes"
  | "joules";
