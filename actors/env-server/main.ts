/** Entry of an env server's process. */
import { runActor } from "../process/boot.ts";
import { envServer } from "./start.ts";

await runActor(envServer);
