/** Entry of the learner's process. */
import { runActor } from "../process/boot.ts";
import { learner } from "./start.ts";

await runActor(learner);
