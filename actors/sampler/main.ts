/** Entry of a sampler's process. */

import { runActor } from "../process/run-actor.ts";
import { sampler } from "./start.ts";

await runActor(sampler);
