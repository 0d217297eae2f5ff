/** Entry of the learner's compute thread. */

import { serveMethods } from "../process/worker-rpc.ts";
import { trainerMethods } from "./trainer.ts";

serveMethods(trainerMethods());
