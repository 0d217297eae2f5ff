/** Calls `checkEnv` for an env whose first observation hides its board. tests/envs/registry.test.ts tests the other rules of `checkEnv` on the built-in envs. */
import { checkEnv } from "../../library/testing.ts";

await checkEnv(import.meta.resolve("./doors.ts"));
