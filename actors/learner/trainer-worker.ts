/** Entry of the trainer thread. */
import { serveMethods } from "../process/worker-rpc.ts";
import { trainerMethods } from "./trainer.ts";

serveMethods(trainerMethods());
