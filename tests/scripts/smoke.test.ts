/** `--smoke`: every preset and env becomes a valid run of two tiny updates. e2e/pretrained plays such a run. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../actors/config/config.ts";
import { presetFiles } from "../../actors/config/preset-files.ts";
import { brokenRules } from "../../actors/config/rules.ts";
import { chooseConfig } from "../../scripts/cli/presets.ts";
import { smokeConfig, smokeText } from "../../scripts/cluster.ts";
import { command, root } from "./command.ts";

const tags = readdirSync(join(root, "configs/env")).map((file) => file.replace(".yaml", ""));
const choices: [string, string][] = [
  ...presetFiles().map((name): [string, string] => ["--preset", name]),
  ...tags.map((tag): [string, string] => ["--env", tag]),
];

test.each(choices)("%s %s", (flag, value) => {
  const overrides = flag === "--env" ? [{ path: "env.tag", text: value, source: flag }] : [];
  const config = chooseConfig({ flags: flag === "--preset" ? { preset: value } : {}, overrides });
  const smoke = smokeConfig(config);
  expect(RunConfig.parse(smoke)).toEqual(smoke);
  expect(brokenRules(smoke)).toEqual([]);
  const { rollout, env, learner, validate, warmStart } = smoke;
  expect(smokeText(smoke)).not.toMatch(/\b1 [a-z]+s\b/);
  const turns = Math.max(env.turnsMax, ...env.mix.map(({ turnsMax }) => turnsMax!));
  // A warm start is for the built-in policy, which writes thousands of tokens a second.
  const tokensMax = warmStart.enabled ? 10_000 : 2000;
  expect(learner.updates * rollout.groups * rollout.groupSize * turns * rollout.replyTokensMax).toBeLessThan(tokensMax);
  expect(validate.episodes).toBe(2);
  expect(warmStart.stages.reduce((sum, { steps, batch }) => sum + steps * batch, 0)).toBeLessThan(100);
});

test("is as small whatever the config asks for, and starts no actor that others lend", () => {
  const settings = {
    "learner.minutes": "0.001",
    "learner.resampleRoundsMax": "3",
    "sampler.count": "0",
    "envServer.count": "0",
    "validate.groupSize": "4",
    "rollout.onlineK": "2",
    "env.mix": '[{"tag":"Bandit","groups":29,"turnsMax":1},{"tag":"FrozenLake","groups":3}]',
  };
  const overrides = Object.entries(settings).map(([path, text]) => ({ path, text, source: path }));
  const { env, learner, rollout, sampler, envServer, validate, warmStart } = smokeConfig(
    chooseConfig({ flags: {}, overrides }),
  );
  expect([learner.minutes, learner.resampleRoundsMax, rollout.onlineK, validate.groupSize]).toEqual([null, 0, 1, 1]);
  expect([sampler.count, envServer.count, warmStart.stages.map(({ warmUpSteps }) => warmUpSteps)]).toEqual([0, 0, [0]]);
  expect(env.mix.map(({ tag, groups, turnsMax }) => [tag, groups, turnsMax])).toEqual([
    ["Bandit", null, 1],
    ["FrozenLake", null, 2],
  ]);
});

test("gives an env of a mix no more turns than the config does", () => {
  const settings = { "env.turnsMax": "1", "env.mix": '[{"tag":"FrozenLake"},{"tag":"Bandit"}]' };
  const overrides = Object.entries(settings).map(([path, text]) => ({ path, text, source: path }));
  const { env } = smokeConfig(chooseConfig({ flags: {}, overrides }));
  expect(env.mix.map(({ turnsMax }) => turnsMax)).toEqual([1, 1]);
});

test("cannot resume a run", async () => {
  const { code, err } = await command(["cluster", "--resume", "runs/a", "--smoke"]);
  expect([code, err]).toEqual([2, "error: --smoke starts a new run; leave --resume out\n"]);
});
