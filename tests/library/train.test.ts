/** What `train` refuses, and where it looks for a model. tests/library/programs.test.ts trains. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../actors/config/config.ts";
import { type Machine, thisMachine } from "../../actors/engine/choice.ts";
import { ConfigError } from "../../actors/errors.ts";
import { envTag } from "../../envs/registry.ts";
import { checkPresent, checkRun, modelFolder } from "../../library/chosen-model.ts";
import { checkBoards, evaluate, loadPolicy } from "../../library/policy.ts";
import { train } from "../../library/train.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const messageOf = (failing: Promise<unknown>) => failing.then(String, ({ message }: Error) => message);

/** What a Hub that has no model is asked for: the path and the secret of each request. */
async function askedOfHub(
  env: Readonly<Record<string, string>>,
  ask: () => Promise<void>,
): Promise<[string, string | null][]> {
  const asked: [string, string | null][] = [];
  using hub = Bun.serve({
    port: 0,
    fetch(request) {
      asked.push([new URL(request.url).pathname, request.headers.get("authorization")]);
      return new Response("no such model", { status: 404 });
    },
  });
  const all = { HF_ENDPOINT: hub.url.href, HF_HUB_CACHE: temporaryFolder(), ...env };
  const before = Object.keys(all).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, all);
  try {
    await ask();
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
  return asked;
}

test("a model of the Hub is asked of the Hub, and no run is left if it is not there", async () => {
  const asked = await askedOfHub({}, async () => {
    const folder = join(temporaryFolder(), "run");
    const settings = { env: { tag: "Bandit" }, model: { path: "hf:tiny/none" } };
    expect(await messageOf(train(settings, { folder }))).toContain("hf:tiny/none");
    expect(existsSync(folder)).toBe(false);
  });
  expect(asked.map(([path]) => path)).toEqual(["/api/models/tiny/none/revision/main"]);
});

test("the Hub gets the token that HF_TOKEN holds, and none if HF_TOKEN is empty", async () => {
  const secretOf = async (HF_TOKEN: string) => {
    const ask = async () => expect(await messageOf(modelFolder("hf:tiny/none", () => {}))).toContain("hf:tiny/none");
    return (await askedOfHub({ HF_TOKEN }, ask)).map(([, secret]) => secret);
  };
  expect(await secretOf("hf_secret")).toEqual(["Bearer hf_secret"]);
  expect(await secretOf("")).toEqual([null]);
});

test("a gate without its certificate is refused before the folder of the run is made", async () => {
  const folder = join(temporaryFolder(), "run");
  const files = { certFile: join(folder, "none.pem"), keyFile: join(folder, "none.key") };
  const gate = { listen: "wss://127.0.0.1:0", ...files };
  expect(await messageOf(train({ actors: "processes", env: { tag: "Bandit" }, join: gate }, { folder }))).toContain(
    `cannot read join.certFile: ENOENT: no such file or directory, open '${files.certFile}'`,
  );
  expect(existsSync(folder)).toBe(false);
});

test("an evaluation imports the modules that it names, and so does loadPolicy", async () => {
  const envs = [join(import.meta.dir, "../../library/template/envs/street.ts")];
  expect(await messageOf(evaluate("random", { tag: "Street" }))).toContain("Street");
  const missing = [join(temporaryFolder(), "none.ts")];
  expect(await messageOf(loadPolicy("runs/none", { envs: missing }))).toContain(missing[0]!);
  expect((await evaluate("random", { tag: "Street" }, { envs, episodes: 8, seed: 1 })).tag.tag).toBe("Street");
});

test("a run is resumed from its folder, with nothing that names another", async () => {
  const folder = join(temporaryFolder(), "none");
  expect(await messageOf(train({}, { resume: folder }))).toBe(`no run in ${folder}: there is no config.json`);
  expect(await messageOf(train({}, { resume: folder, preset: "quickstart" }))).toStartWith("resume names the folder");
});

test.each([
  [{ episodes: 0 }, "episodes must be a whole number of at least 1, got 0"],
  [{ episodes: 1.5 }, "episodes must be a whole number of at least 1, got 1.5"],
  [{ samples: Number.NaN }, "samples must be a whole number of at least 1, got NaN"],
  [{ seed: -1 }, "seed must be a whole number of at least 0, got -1"],
  [
    { seed: 4294967295, episodes: 2 },
    "seed 4294967295: the last of 2 boards would have a seed above 4294967295; start at 4294967294 or lower",
  ],
  [
    { episodes: 5_000_001, samples: 2 },
    "5000001 episodes with 2 samples each: an evaluation has at most 10000000 in all; lower one of them",
  ],
])("an evaluation on the boards %j is refused", async (boards, message) => {
  expect(await messageOf(evaluate("random", { tag: "Bandit" }, boards))).toBe(message);
});

test("an evaluation may take the last board, and as many episodes as memory holds", async () => {
  expect((await evaluate("random", { tag: "Bandit" }, { seed: 4294967295, episodes: 1 })).actionsMax).toBe(1);
  expect(() => checkBoards(5_000_000, 0, 2)).not.toThrow();
});

test("an evaluation has the budget of the env's own file, unless it names one", async () => {
  const actionsMax = async (env: { tag: string; actionsMax?: number }) =>
    (await evaluate("random", env, { episodes: 1 })).actionsMax;
  expect(await actionsMax({ tag: "Bandit" })).toBe(1);
  expect(await actionsMax({ tag: "Bandit", actionsMax: 2 })).toBe(2);
});

test("a player that the env lacks is refused with those that it has", async () => {
  const refused = (tag: string, options: object) => messageOf(evaluate("optimal", { tag, options }));
  expect(await refused("game_2048", {})).toBe("game_2048 has no optimal player; use random");
  const street = join(import.meta.dir, "../../library/template/envs/street.ts");
  const expert = messageOf(evaluate("expert", { tag: "Street" }, { envs: [street] }));
  expect(await expert).toBe("Street has no expert player; use random");
});

test.each([-1, Number.POSITIVE_INFINITY, Number.NaN])(
  "a policy with the temperature %p is refused",
  async (temperature) => {
    const text = `temperature must be a finite number of at least 0, got ${temperature}`;
    expect(await messageOf(loadPolicy("runs/none", { temperature }))).toBe(text);
    expect(await messageOf(loadPolicy("runs/none", { temperature: 0 }))).toContain("runs/none");
  },
);

test.each([
  [{ slots: 0 }, "slots must be a whole number of at least 1, got 0"],
  [{ queueMax: -1 }, "queueMax must be a whole number of at least 0, got -1"],
])("a policy with %j is refused: its replies would wait for ever, or fail", async (options, message) => {
  expect(await messageOf(loadPolicy("runs/none", options))).toBe(message);
});

test("a run whose signal was aborted before begins nothing", async () => {
  const folder = join(temporaryFolder(), "run");
  const signal = AbortSignal.abort(new Error("not today"));
  expect(await messageOf(train({ env: { tag: "Bandit" } }, { folder, signal }))).toBe("not today");
  expect(existsSync(folder)).toBe(false);
});

test("a config that needs a pretrained model takes a policy of another run instead", () => {
  const config = RunConfig.parse({ model: { pretrainedOnly: true } });
  expect(() => checkRun(config)).toThrow("this config needs a pretrained model: the built-in policy cannot learn");
  for (const model of [{ path: "m" }, { checkpoint: "runs/a/checkpoints/u000001" }])
    expect(() => checkRun({ ...config, model: { ...config.model, ...model } })).not.toThrow();
});

test("a config that names device cuda is refused before actors start, if this machine lacks a part of it", () => {
  const config = RunConfig.parse({ engine: { name: "compiled", device: "cuda" } });
  const machine = (lack: string | null): Machine => ({ ...thisMachine, lackOf: () => lack });
  const lack = "NVIDIA's driver is missing; install R580 or newer";
  const message = `engine.device: cuda cannot be used: ${lack}`;
  expect(() => checkRun(config, machine(lack))).toThrow(new ConfigError(message));
  expect(() => checkRun(config, machine(null))).not.toThrow();
  expect(() => checkRun(RunConfig.parse({}), machine(lack))).not.toThrow();
});

test("an env whose data are missing is refused with how to get them", () => {
  const tag = { ...envTag("Bandit"), missing: () => "no data here; run `bun run setup`" };
  expect(() => checkPresent(tag)).toThrow(new ConfigError("no data here; run `bun run setup`"));
  expect(() => checkPresent(envTag("Bandit"))).not.toThrow();
});
