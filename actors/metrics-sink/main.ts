/** Entry of the metrics sink's process. */
import { runActor } from "../process/boot.ts";
import { metricsSink } from "./start.ts";

await runActor(metricsSink);
