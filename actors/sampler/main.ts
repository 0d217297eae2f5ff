/** Entry of a sampler's process. */
import { runActor } from "../process/boot.ts";
import { sampler } from "./start.ts";

await runActor(sampler);
