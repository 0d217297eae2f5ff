/** Entry of the learner's compute thread. */

import { trainerMethods } from "../learner/trainer-thread.ts";
import { serveMethods } from "../threads.ts";

serveMethods(trainerMethods());
