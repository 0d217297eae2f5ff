import { expect, test } from "bun:test";
import { adapted as adaptedServer } from "../../scripts/env-server.ts";
import { adapted } from "../../scripts/sampler.ts";
import { configOf } from "../actors/training/stage.ts";
import { commandHere } from "./command.ts";

test.each([
  ["sampler", "--slots"],
  ["sampler", "--threads"],
  ["env-server", "--episodes"],
])("%s %s 0 is refused before it connects", async (name, flag) => {
  const { code, err } = await commandHere([name, "--join", "ws://127.0.0.1:1", flag, "0"]);
  expect([code, err]).toEqual([2, `error: ${flag} takes a whole number, 1 or more, got "0"\n`]);
});

test("what a guest's flags say of its machine replaces the run's, and nothing else", () => {
  const config = configOf({ sampler: { slots: 9, threads: 2 }, envServer: { episodesMax: 99 } });
  const { sampler, envServer } = config;
  expect(adapted(config, {})).toEqual(config);
  expect(adapted(config, { slots: 4 })).toEqual({ ...config, sampler: { ...sampler, slots: 4 } });
  expect(adapted(config, { threads: 3 })).toEqual({ ...config, sampler: { ...sampler, threads: 3 } });
  expect(adaptedServer(config, {})).toEqual(config);
  expect(adaptedServer(config, { episodes: 4 })).toEqual({ ...config, envServer: { ...envServer, episodesMax: 4 } });
});
