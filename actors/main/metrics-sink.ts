/** Entry of the metrics sink's process. */
import { metricsSink } from "../start-metrics-sink.ts";
import { runActor } from "./run-actor.ts";

await runActor(metricsSink);
