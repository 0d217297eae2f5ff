/** Entry of an env server's process. */
import { envServer } from "../start-env-server.ts";
import { runActor } from "./run-actor.ts";

await runActor(envServer);
