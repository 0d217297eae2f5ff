/** Entry of an env server's process. */

import { runActor } from "../process/run-actor.ts";
import { envServer } from "./start.ts";

await runActor(envServer);
