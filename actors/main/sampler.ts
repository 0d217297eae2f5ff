/** Entry of a sampler's process. */
import { sampler } from "../start-sampler.ts";
import { runActor } from "./run-actor.ts";

await runActor(sampler);
