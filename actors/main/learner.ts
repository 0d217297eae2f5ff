/** Entry of the learner's process. */
import { learner } from "../start-learner.ts";
import { runActor } from "./run-actor.ts";

await runActor(learner);
