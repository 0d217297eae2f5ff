import { defineConfig } from "bunraku/config";

export default defineConfig({
  envs: ["./envs/street.ts"],
  // No solver is needed: the warm start imitates plans from random play, and reinforcement goes on from there.
  run: { env: { tag: "Street" }, learner: { updates: 60 } },
});
