/** `checkEnv` on an env whose opening hides its board. tests/envs/registry.test.ts checks the built-in envs, and so the other rules. */
import { checkEnv } from "../../library/testing.ts";

await checkEnv(import.meta.resolve("./doors.ts"));
