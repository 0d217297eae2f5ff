/** Entry of the learner's process. */

import { runActor } from "../process/run-actor.ts";
import { learner } from "./start.ts";

await runActor(learner);
