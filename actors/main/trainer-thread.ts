/** Entry of the learner's compute thread. */
import { serveMethods } from "../threads.ts";
import { trainerMethods } from "../trainer-thread.ts";

serveMethods(trainerMethods());
