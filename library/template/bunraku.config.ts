import { defineConfig } from "bunraku/config";

export default defineConfig({
  envs: ["./envs/street.ts"],
  // The run needs no solver. The warm start imitates plans from random play, and reinforcement then trains the policy further.
  run: { env: { tag: "Street" }, learner: { updates: 60 } },
});
