/** `bun run eval`: players beside their published levels, a run's policy, and everything it refuses. */
import { beforeAll, describe, expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { playRun, tinyConfig } from "../actors/supervisor/tiny-run.ts";
import { command, commandHere, type Ended, expectRefusal, expectSuccess, root } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const evaluate = (...args: string[]) => evaluateBy(commandHere, args);
const evaluateInProcess = (...args: string[]) => evaluateBy(command, args);

async function evaluateBy(how: (args: readonly string[]) => Promise<Ended>, args: readonly string[]) {
  const ended = await how(["eval", ...args, "--json"]);
  expectSuccess(ended);
  return { table: ended.out, result: JSON.parse(ended.out.trimEnd().split("\n").at(-1)!) };
}

const boards = ["--episodes", "256", "--seed", "123"];

describe("a player", () => {
  // Ranges: what RAGEN's own envs give on these boards, a binomial spread of 256 episodes around it.
  test.each([
    ["SimpleSokoban", "random", 0.16, 0.22],
    ["LargerSokoban", "random", 0, 0.06],
    ["FrozenLake", "random", 0.17, 0.26],
    ["SimpleSokoban", "optimal", 1, 1],
    ["FrozenLake", "optimal", 0.44, 0.53],
  ])("of %s, %s, solves what is known of it", async (env, policy, low, high) => {
    const { result } = await evaluate("--env", env, "--policy", policy, ...boards);
    expect(result).toMatchObject({ env, policy, episodes: 256, seed: 123, formatErrors: 0 });
    expect(result.success).toBeWithin(low, high + 1e-9);
    expect(result.ci95[0]).toBeLessThanOrEqual(result.success);
    expect(result.ci95[1]).toBeGreaterThanOrEqual(result.success);
    const keys = [
      "policy",
      "env",
      "episodes",
      "seed",
      "samples",
      "success",
      "ci95",
      "random",
      "expert",
      "best",
      "passAt",
    ];
    expect(Object.keys(result)).toEqual([...keys, "meanReward", "meanTurns", "meanActions", "formatErrors"]);
  });

  test("does the same again from the same seed, and something else from another", async () => {
    const first = await evaluate("--env", "FrozenLake", "--policy", "random", "--seed", "7");
    expect(await evaluateInProcess("--env", "FrozenLake", "--policy", "random", "--seed", "7")).toEqual(first);
    const other = await evaluate("--env", "FrozenLake", "--policy", "random", "--seed", "8");
    expect(other.table).not.toBe(first.table);
  });

  test("has its episodes in a file whose folder is made, and is refused before it plays if the file cannot be written", async () => {
    const file = join(temporaryFolder(), "new", "episodes.jsonl");
    const asked = ["eval", "--env", "Bandit", "--policy", "random", "--episodes", "4", "--results"];
    expect(await commandHere([...asked, file])).toMatchObject({ code: 0 });
    expect(readFileSync(file, "utf8").trimEnd().split("\n").length).toBe(4);
    // An empty file holds no other evaluation.
    writeFileSync(file, "");
    expect(await commandHere([...asked, file])).toMatchObject({ code: 0 });
    const refused = await commandHere([...asked, join(file, "episodes.jsonl")]);
    expect(refused).toMatchObject({ code: 2, out: "" });
    expect(refused.err).toContain(`--results ${file}/episodes.jsonl cannot be written: `);
  });

  test("takes the env's options and budget: surer feet reach more, fewer steps less", async () => {
    const success = async (...args: string[]) =>
      (await evaluate("--env", "FrozenLake", "--policy", "optimal", ...args)).result.success;
    const sure = await success("--env.options.successRate=1");
    expect(sure).toBeGreaterThan(await success());
    expect(await success('--env.options={"successRate":1}', "--env.actionsMax=3")).toBeLessThan(sure);
  });

  test("stands beside chance and the best possible", async () => {
    const { table } = await evaluate("--env", "SimpleSokoban", "--policy", "optimal", "--episodes", "32");
    expect(table).toMatch(/\noptimal +100\.0 % +89\.3 – 100\.0 % .*\nrandom +\d+\.\d % .*\nbest possible +100\.0 %\n/);
  });
});

test("a random player is tried several times at each board: more tries, more boards solved", async () => {
  const { result } = await evaluate("--env", "FrozenLake", "--policy", "random", "--episodes", "64", "--samples", "8");
  const passAt = Object.entries(result.passAt as Record<string, number>);
  expect(passAt.map(([k]) => k)).toEqual(["1", "2", "4", "8"]);
  expect(passAt.map(([, share]) => share)).toEqual(passAt.map(([, share]) => share).toSorted((a, b) => a - b));
  expect(result.ci95[0]).toBeLessThan(result.success);
  expect(result.ci95[1]).toBeGreaterThan(result.success);
});

describe("a run's policy", () => {
  let folder: string;
  beforeAll(async () => {
    folder = join(temporaryFolder(), "run");
    await playRun(folder, tinyConfig(folder, { samplers: 1, warmStart: "shared" }));
  }, 300_000);

  test("plays the run's env on its validation boards: its own last validation, with why episodes stopped", async () => {
    const { result, table } = await evaluate("--policy", folder);
    const report = JSON.parse(readFileSync(join(folder, "report.json"), "utf8"));
    expect(result).toMatchObject({ env: "Bandit", policy: folder, episodes: 16, seed: 123 });
    expect(result.success).toBe(report.success.after);
    const solved = Math.round(result.success * 16);
    expect(table).toContain(`stopped: solved ${solved} (`);
    expect(table).toMatch(/\nrandom +\d/);
  });

  test("plays the given env, seed and checkpoint, the same each time", async () => {
    const args = ["--policy", folder, "--env", "BanditTest", "--episodes", "40", "--seed", "9", "--temperature", "1"];
    const first = await evaluate(...args, "--checkpoint", "u000003");
    expect(first.result).toMatchObject({ env: "BanditTest", episodes: 40, seed: 9 });
    expect(await evaluateInProcess(...args)).toEqual(first);
  });

  test("plays another env with that env's own budgets", async () => {
    const { result } = await evaluate("--policy", folder, "--env", "SimpleSudoku", "--episodes", "4");
    // The run itself allows one turn.
    expect(result.meanTurns).toBeGreaterThan(1);
  });

  test("is tried several times at each board if asked, which tells pass@k", async () => {
    const args = ["--policy", folder, "--episodes", "10", "--temperature", "1", "--samples", "4"];
    const { result, table } = await evaluate(...args);
    expect(result).toMatchObject({ episodes: 10, samples: 4 });
    const passAt = result.passAt as Record<string, number>;
    expect(Object.keys(passAt)).toEqual(["1", "2", "4"]);
    expect(passAt["1"]).toBeCloseTo(result.success, 12);
    expect([passAt["1"]! < passAt["2"]!, passAt["2"]! < passAt["4"]!]).toEqual([true, true]);
    expect(table).toContain("Bandit, 10 boards from seed 123, 4 episodes each, at most 1 action each");
    expect(table).toMatch(/\nsolved by at least one of k tries: pass@1 \d+\.\d % · pass@2 .* · pass@4 .*\n/);
    // The first try at each board is the episode that there is without others.
    const alone = await evaluate(...args.slice(0, -2));
    expect(alone.result.passAt).toEqual({ 1: alone.result.success });
  });

  const refused = (...args: string[]) => commandHere(["eval", "--policy", folder, ...args]);
  test("of a run over a mix plays each of its envs, with a table for each, or the one that is chosen", async () => {
    const mixed = join(temporaryFolder(), "mixed");
    cpSync(folder, mixed, { recursive: true });
    const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8"));
    const mix = [{ tag: "Bandit" }, { tag: "BanditTest", name: "Other", actionsMax: 1 }];
    writeFileSync(join(mixed, "config.json"), JSON.stringify({ ...config, env: { ...config.env, mix } }));
    const asked = ["--episodes", "20", "--temperature", "1", "--samples", "2"];
    const { result, table } = await evaluate("--policy", mixed, ...asked);
    expect([Object.keys(result), Object.keys(result.envs)]).toEqual([
      ["policy", "envs"],
      ["Bandit", "Other"],
    ]);
    const { result: bandit } = await evaluate("--policy", folder, ...asked);
    expect({ policy: folder, ...result.envs.Bandit }).toEqual(bandit);
    expect(result.envs.Other).toMatchObject({ env: "BanditTest", episodes: 20, samples: 2 });
    for (const { success, ci95, random, best, passAt, failures } of Object.values<typeof bandit>(result.envs)) {
      expect([ci95[0] <= success, success <= ci95[1], random > 0, best]).toEqual([true, true, true, 1]);
      expect(Object.keys(passAt)).toEqual(["1", "2"]);
      const failed = Object.values<number>(failures).reduce((sum, count) => sum + count, 0);
      expect(failed).toBe(40 - Math.round(40 * success));
    }
    const tables = table.split("\n\n").filter((part) => / boards from seed /.test(part));
    expect(tables.map((part) => part.trim().split(",")[0])).toEqual(["Bandit", "Other (BanditTest)"]);
    const each = table.slice(0, table.indexOf("\nsuccess "));
    for (const part of [/\nrandom +\d/, /\nbest possible +100\.0 %/, /pass@2/, /\nfailed: /]) {
      expect(each.match(new RegExp(part, "g"))!.length).toBe(2);
    }
    const { result: chosen } = await evaluate("--policy", mixed, "--env", "Other", ...asked);
    const { result: same } = await evaluate("--policy", folder, "--env", "BanditTest", ...asked);
    expect(chosen).toEqual({ ...same, policy: mixed });
    const twice = [
      { tag: "Bandit", name: "One" },
      { tag: "Bandit", name: "Two" },
    ];
    writeFileSync(join(mixed, "config.json"), JSON.stringify({ ...config, env: { ...config.env, mix: twice } }));
    const both = await evaluate("--policy", mixed, "--env", "Two,One", ...asked);
    expect(Object.keys(both.result.envs)).toEqual(["Two", "One"]);
    expect(both.table).toMatch(/\nsuccess +Two +One\n/);
    writeFileSync(join(mixed, "config.json"), JSON.stringify({ ...config, env: { ...config.env, mix } }));
    const beside = await commandHere(["eval", "--policy", `${mixed},random`]);
    expect([beside.code, beside.out, beside.err]).toEqual([
      2,
      "",
      `error: random would play one env, and ${mixed} plays several; name one of their tags: --env TAG\n`,
    ]);
    const unclear = await commandHere(["eval", "--policy", mixed, "--env.turnsMax=1"]);
    expect([unclear.code, unclear.err]).toEqual([
      2,
      "error: this run plays several envs; name one of them as env.tag, or leave all keys of env out: Bandit, Other\n",
    ]);
  }, 300_000);

  test("stands beside other policies on several envs, with every episode in a file", async () => {
    const file = join(temporaryFolder(), "episodes.jsonl");
    const asked = ["--policy", `${folder},random`, "--env", "Bandit,BanditTest", "--episodes", "16", "--results", file];
    const { result, table } = await evaluate(...asked);
    const [own, chance] = result.policies;
    expect([own.policy, chance.policy]).toEqual([folder, "random"]);
    const success = (one: typeof own) =>
      ["Bandit", "BanditTest"].map((env) => `${(100 * one.envs[env].success).toFixed(1)} %`);
    const columns = (line: string) => line.trim().split(/ {2,}/);
    const across = table.slice(table.indexOf("\nsuccess ")).trim().split("\n").map(columns);
    expect(across.slice(0, 3)).toEqual([
      ["success", "Bandit", "BanditTest"],
      [`${folder} (trained on Bandit)`, ...success(own)],
      ["random", ...success(chance)],
    ]);
    expect(across[4]).toEqual(["best possible", "100.0 %", "100.0 %"]);
    // The shares of failures and of successes add up to 1.
    const failures = across.slice(7, 9);
    expect(failures.map(([title]) => title)).toEqual([`${folder} on Bandit`, `${folder} on BanditTest`]);
    for (const [i, [, ...shares]] of failures.entries()) {
      const sum = shares.reduce((total, share) => total + Number.parseFloat(share), 0);
      expect(sum + Number.parseFloat(success(own)[i]!)).toBeCloseTo(100, 0);
    }
    const lines = readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.length).toBe(64);
    for (const { policy, envs } of [own, chance]) {
      for (const env of ["Bandit", "BanditTest"]) {
        const episodes = lines.filter((line) => line.policy === policy && line.env === env);
        expect(episodes.map(({ layoutSeed }) => layoutSeed)).toEqual(Array.from({ length: 16 }, (_, i) => 123 + i));
        expect(episodes.filter((one) => one.success).length / 16).toBe(envs[env].success);
        expect(episodes.every(({ turns }) => turns.length === 1 && turns[0].observation.includes("2 arms"))).toBe(true);
        const rewards = episodes.reduce((sum, { turns }) => sum + turns[0].reward, 0);
        expect(rewards / 16).toBeCloseTo(envs[env].meanReward, 12);
      }
    }
    const replied = lines.filter(({ policy }) => policy === folder);
    expect(replied.every(({ turns, entropy }) => typeof turns[0].reply === "string" && entropy >= 0)).toBe(true);
    expect(table).toMatch(/\nentropy: \d\.\d{3} nats per written token/);
    expect((await commandHere(["eval", ...asked])).err).toBe(`error: --results ${file} exists; name another file\n`);
  }, 300_000);

  test("plays no env if one of several is unknown", async () => {
    for (const policy of [folder, "random"]) {
      const { code, out, err } = await commandHere(["eval", "--policy", policy, "--env", "Bandit,Bandits"]);
      expect([code, out, err]).toEqual([2, "", expect.stringMatching(/^error: unknown env tag "Bandits"; nearest: /)]);
    }
  });

  test("has only the checkpoints it has, and keeps its config", async () => {
    expect(await refused("--checkpoint", "u000099")).toMatchObject({ code: 2, out: "" });
    expect((await refused("--checkpoint", "../run")).err).toContain("has no checkpoint named ../run");
    expect((await refused("--learner.gamma=1")).err).toContain("except for keys of env; leave it out");
    expect((await refused("--temperature", "-1")).err).toContain("--temperature must be 0 or more, got -1");
  });

  test("is refused with exit code 1 if its checkpoint is not what was saved", async () => {
    const file = join(folder, "checkpoints", "u000003", "policy.safetensors");
    const bytes = readFileSync(file);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(file, bytes);
    const { code, err } = await refused("--checkpoint", "u000003");
    expect([code, err.trimEnd().split("\n").length]).toEqual([1, 1]);
    expect(err).toContain("policy.safetensors is corrupt");
  });
});

describe("refused with exit code 2 and one line", () => {
  test.each([
    [["--env", "Sokobann", "--policy", "random"], /unknown env tag "Sokobann"; nearest: .*SimpleSokoban/],
    [
      ["--policy", "random", "--samples", "4294967296"],
      /256 episodes with 4294967296 samples each: an evaluation has at most 10000000 in all; lower one of them/,
    ],
    [
      ["--env", "Bandit,FrozenLake,Bandit", "--policy", "random"],
      /FrozenLake,Bandit names Bandit twice; leave one out/,
    ],
    [["--policy", "random,optimal", "--temperature", "1"], /--temperature is for policies that sample; leave it out/],
    [["--policy", "random", "--samples", "0"], /samples must be a whole number of at least 1, got 0/],
    [["--policy", "random", "--env.mix=[]"], /takes env.options and env.actionsMax only; leave it out/],
    [
      ["--policy", "nowhere"],
      /no run in nowhere: --policy takes random, optimal, expert, the folder of a run, openai:MODEL or anthropic:MODEL/,
    ],
    [["--env", "FrozenLake"], /name who plays/],
    [["--policy", "random", "--episodes", "0"], /episodes must be a whole number of at least 1, got 0/],
    [["--policy", "random", "--episodes", "9", "--seed", "4294967290"], /start at 4294967287 or lower/],
    [["--policy", "random", "--checkpoint", "u000001"], /--checkpoint is for a run's policy, not for random/],
    [["--policy", "optimal", "--env", "game_2048"], /game_2048 has no optimal player; use random/],
    [["--policy", "random", "--env.turnsMax=3"], /random writes no replies/],
    [["--policy", "random", "--env.actionsMax=0"], /env\.actionsMax: .*got 0/],
    [["--policy", "random", "--env", "FrozenLake", "--env.options.succesRate=1"], /succesRate/],
    [["--polcy", "random"], /did you mean --policy\?/],
    [["--base", "http://127.0.0.1:1"], /did you mean --base-url\?/],
    // `model` is a section of the config, and no flag of eval.
    [["--model", "m"], /eval has no flag --model; `--help` lists its flags/],
  ])("%p", async (args, told) => {
    expectRefusal(await commandHere(["eval", ...args]), told);
  });
});

test("the path of an env's module may stand in a list of envs, also without bunraku.config.ts", async () => {
  const street = join(root, "library/template/envs/street.ts");
  for (const envs of [`${street},Bandit`, `Bandit,${street}`]) {
    const { code, out } = await commandHere(["eval", "--env", envs, "--policy", "random", "--episodes", "4"]);
    expect([code, out.match(/^\w+(?=, 4 boards from seed)/gm)?.sort()]).toEqual([0, ["Bandit", "Street"]]);
  }
});

test("help names every env", async () => {
  const { out } = await commandHere(["eval", "--help"]);
  for (const tag of ["SimpleSokoban", "FrozenLake", "BanditTest", "Countdown"]) expect(out).toContain(tag);
});
