import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { describeConfig, RunConfig, runKeys, withoutSecrets } from "../../../actors/config/config.ts";
import { FORMER_KEYS, upgraded } from "../../../actors/config/former-keys.ts";
import { type Layer, lastToSet, merge, oneValue, parseLayer, readLayer } from "../../../actors/config/layers.ts";
import { ConfigError } from "../../../actors/errors.ts";

const faults = (...layers: readonly Layer[]): string[] => {
  try {
    composeRunConfig(layers);
  } catch (error) {
    if (error instanceof ConfigError) return error.message.split("\n");
    throw error;
  }
  return [];
};
const layer = (yaml: string, source = "mine.yaml") => parseLayer(yaml, source);

describe("a run's config", () => {
  test("can be run as it is: an empty file is the defaults", () => {
    expect(composeRunConfig([layer("")])).toEqual(RunConfig.parse({}));
    expect(faults()).toEqual([]);
  });

  test("has a sentence, and a default of its own type, for every key", () => {
    for (const { path, description, default: value } of runKeys.all) {
      expect({ path, described: description.length > 5, hasDefault: value !== undefined }).toEqual({
        path,
        described: true,
        hasDefault: true,
      });
    }
  });

  test("reads each key's own default back from its text", () => {
    for (const { path, default: value } of runKeys.all) {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      expect(runKeys.value(path, text)).toEqual(value);
    }
  });

  test("gives an option of an env the type that its text has", () => {
    const texts = ["null", "true", "12", '"12"', "Phoenix"];
    const values = texts.map((text) => runKeys.value("env.options.any", text));
    expect(values).toEqual([null, true, 12, "12", "Phoenix"]);
  });

  test("shows every key, and no secret", () => {
    const config = composeRunConfig([layer("metrics: {token: a-secret-of-a-run}")]);
    const lines = describeConfig(config).split("\n");
    expect(lines.length).toBe(runKeys.all.length);
    expect(lines).toContain("learner.betas = [0.9,0.99]");
    expect(lines).toContain('metrics.token = "(hidden)"');
    expect(lines).toContain("transport.token = null");
    expect(withoutSecrets(config)).toEqual(composeRunConfig([layer("")]));
  });

  test("never repeats a secret in an error", () => {
    expect(faults(layer("metrics: {token: short-secret}"))).toEqual([
      'mine.yaml: metrics.token: Too small: expected string to have >=16 characters, got "(hidden)"',
    ]);
  });
});

describe("a YAML file", () => {
  test.each([
    ["env: &a\n  options: *a", "an anchor (&) contains its own alias (*); write the values out"],
    ["seed: 1\nseed: 2", "seed is set twice; leave one out"],
    ["learner:\n  gamma: 1\nenv:\n  tag: Bandit\nlearner:\n  gamma: 0", "learner is set twice; leave one out"],
    ["env:\n  mix:\n    - tag: A\n      tag: B", "tag is set twice; leave one out"],
    ['seed: 1\n"seed": 2', "seed is set twice; leave one out"],
    ["a: |\n  k: 1\nb: 2\na: 3", "a is set twice; leave one out"],
    ["env:\r\n  tag: A\r\nseed: 1\r\nenv:\r\n  tag: B", "env is set twice; leave one out"],
    ["\uFEFFseed: 1\nseed: 2", "seed is set twice; leave one out"],
    ["seed:\t1\nseed:\t2", "seed is set twice; leave one out"],
  ])("%j is refused", (text, fault) => expect(() => layer(text)).toThrow(new ConfigError(`mine.yaml: ${fault}`)));

  test("may use a value twice, and a key in several blocks and items", () => {
    const text = "a: &x {k: 1}\nb:\n  c: *x\n  d: *x\ne:\n  c: 1\nf:\n  - k: 1\n    l: 2\n  - k: 3\n    l: 4";
    const items = [
      { k: 1, l: 2 },
      { k: 3, l: 4 },
    ];
    expect(layer(text).values).toEqual({ a: { k: 1 }, b: { c: { k: 1 }, d: { k: 1 } }, e: { c: 1 }, f: items });
  });

  test("may have the line ends of Windows", () => {
    expect(layer("a:\r\n  k: 1\r\nb:\r\n  k: 2\r\n").values).toEqual({ a: { k: 1 }, b: { k: 2 } });
  });
});

test("a file without an end is refused by its size", () => {
  expect(() => readLayer("/dev/zero")).toThrow(
    new ConfigError("/dev/zero: a config has at most 256 KiB, and this file has more; name another file"),
  );
});

test("of very many unknown keys the first 20 are named", () => {
  const keys = Array.from({ length: 3000 }, (_, i) => `  k${i}: 1`);
  const lines = faults(layer(["learner:", ...keys].join("\n")));
  expect([lines.length, lines[19], lines[20]]).toEqual([
    21,
    "mine.yaml: unknown key learner.k19; did you mean learner.kl?",
    "learner has 2980 more unknown keys",
  ]);
});

test("a key with dots in a file is refused with the form that a file takes", () => {
  const lower = { ...layer("learner: {updates: 3, filter: {value: 1}}"), source: "preset.yaml" };
  expect(faults(lower, layer("learner.updates: 5\nlearner: {filter.value: 1}"))).toEqual([
    'mine.yaml: unknown key "learner.filter.value"; keys of a section are nested: write learner: {filter: {value: VALUE}}',
    'mine.yaml: unknown key "learner.updates"; keys of a section are nested: write learner: {updates: VALUE}',
  ]);
});

test("a text of several lines in a YAML file has no keys", () => {
  const text = "a: |\n  k: 1\n\n  k: 2\nb:\n  - >-\n    k: 1\n    k: 2\n  - c: |\n      k: 1\n      k: 2\n    d: 1";
  expect(layer(text).values).toEqual({ a: "k: 1\n\nk: 2\n", b: ["k: 1 k: 2", { c: "k: 1\nk: 2\n", d: 1 }] });
});

describe("layers", () => {
  test("merge key by key; lists are replaced, or changed item by item", () => {
    const layers = [
      layer("a: {x: 1, y: 2}\nb: [1, 2, 3]\nc: [{s: 1, t: 2}, {s: 3, t: 4}]"),
      layer("a: {y: 5}\nb: [9]\nc: {1: {t: 6}}"),
    ];
    expect(merge(layers)).toEqual({
      a: { x: 1, y: 5 },
      b: [9],
      c: [
        { s: 1, t: 2 },
        { s: 3, t: 6 },
      ],
    });
  });

  test("merging is associative: what came first and second may be put together first", () => {
    const tree = fc.dictionary(
      fc.constantFrom("a", "b", "c"),
      fc.oneof(fc.integer(), fc.dictionary(fc.constantFrom("x", "y"), fc.integer())),
    );
    const asLayer = (values: Record<string, unknown>): Layer => ({ source: "", values });
    fc.assert(
      fc.property(tree, tree, tree, (a, b, c) => {
        // A value between two mappings hides the lower mapping. Only merging from the left gives this result.
        fc.pre(Object.entries(b).every(([key, value]) => typeof value === "object" || typeof c[key] !== "object"));
        const [x, y, z] = [asLayer(a), asLayer(b), asLayer(c)];
        expect(merge([x, asLayer(merge([y, z]))])).toEqual(merge([x, y, z]));
      }),
    );
  });

  test("know who set a key last", () => {
    const layers = [layer("a: {x: 1}"), oneValue("--a.y=2", "a.y", 2), layer("b: [1]")];
    expect(["a.x", "a.y", "a", "b.0", "c"].map((path) => lastToSet(layers, path))).toEqual([0, 1, 1, 2, -1]);
  });

  test("refuse an item that the list does not have", () => {
    expect(() => merge([layer("a: [1]"), oneValue("--a.4=1", "a.4", 1)])).toThrow(
      new ConfigError("--a.4=1: no item 4 in a list of 1; items are numbered from 0"),
    );
  });

  test("cannot reach a prototype", () => {
    expect(faults(layer("__proto__: {polluted: true}"))).toEqual([
      "mine.yaml: unknown key __proto__; `bun run config` lists the keys",
    ]);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  });
});

test("refuses a password in an engine's address, without repeating it", () => {
  const found = faults(layer("engine: {name: tinker, url: 'http://ann:secret@127.0.0.1:8801'}")).join("\n");
  expect(found).toContain("engine.url: the address has a user or a password, which no actor sends; leave it out");
  expect(found).not.toContain("secret");
});

describe("rules across keys", () => {
  test.each([
    [
      "rollout: {groupSize: 1}\nlearner: {filter: {strategy: all}}",
      "rollout.groupSize: grpo compares episodes within a group, so groupSize must be at least 2; raise it, or use the algorithm ppo",
    ],
    [
      "learner: {mode: async}",
      "learner.stalenessMax: async mode plays while it learns, so stalenessMax must be at least 1; to train only on the newest policy's episodes, set learner.mode to sync",
    ],
    [
      "env: {tag: SimpelSokoban}",
      'env.tag: unknown env tag "SimpelSokoban"; nearest: SimpleSokoban, LargerSokoban, CoordSokoban',
    ],
    [
      "learner: {kl: {coefficient: 0.1, estimator: k1}}",
      "learner.kl.estimator: in the loss the expected gradient of k1 is zero, so k1 adds only noise; use k3, or learner.kl.place reward; to repeat RAGEN's runs, set prompt.compat",
    ],
    [
      "learner: {minibatch: 129}",
      "learner.minibatch: 129 is more than the 128 trajectories of an update (rollout.groups x rollout.groupSize); lower it",
    ],
    [
      "model: {checkpoint: runs/a/checkpoints/u000001}",
      "warmStart.enabled: the warm start would overwrite the policy of model.checkpoint; set it to false, or leave model.checkpoint out",
    ],
    [
      "env: {tag: game_2048}\nwarmStart: {imitate: demonstrator}",
      "warmStart.enabled: game_2048 has no scripted player to imitate; set warmStart.imitate to random-play, or warmStart.enabled to false",
    ],
    [
      "env: {tag: Remote, options: {url: 'http://127.0.0.1:1'}}",
      "warmStart.imitate: random play would open 600000 episodes (warmStart.boards x plays) of Remote, which runs outside this process; at most 20000 are allowed; set warmStart.boards to 333 or less, or give the env a demonstrator",
    ],
    [
      "env: {tag: Remote, options: {expert: true}}",
      "warmStart.imitate: random play would open 600000 episodes (warmStart.boards x plays) of Remote, which runs outside this process; at most 20000 are allowed; set warmStart.boards to 333 or less, or set warmStart.imitate to demonstrator",
    ],
    [
      "rollout: {replyTokensMax: 360}",
      "rollout.replyTokensMax: a reply of 360 tokens leaves no room for a prompt in rollout.contextTokensMax, 360; lower rollout.replyTokensMax, or raise rollout.contextTokensMax",
    ],
    [
      "prompt: {layout: ragen-v1, context: single_turn}",
      "prompt.context: single_turn needs a summary message, and the layout ragen-v1 has none; set prompt.layout to ragen-v2 or compact",
    ],
    [
      "model: {heads: 3, kvHeads: 1}",
      "model.heads: model.width / model.heads is 128 / 3; rotary positions need an even whole number; change one of them",
    ],
    ["model: {kvHeads: 3}", "model.kvHeads: 3 does not divide model.heads, 4; change one of them"],
    [
      "learner: {filter: {value: 0.05}}",
      "learner.filter.value: 0.05 of 16 groups is less than one group; raise it to 0.0625 or more",
    ],
    [
      "rollout: {groups: 49}\nlearner: {filter: {value: 0.01}}",
      "learner.filter.value: 0.01 of 49 groups is less than one group; raise it to 0.0205 or more",
    ],
    [
      "rollout: {groupSize: 1}\nlearner: {algorithm: ppo, filter: {strategy: top_k, metric: entropy_variance}}",
      "learner.filter.strategy: top_k ranks groups by the std of their entropies, and a group of 1 has no std; use strategy all",
    ],
    [
      "learner: {filter: {value: 4}}",
      "learner.filter.value: top_ratio takes a share above 0 and up to 1, got 4; change it",
    ],
    [
      "learner: {filter: {strategy: top_k_abs, value: 17}}",
      "learner.filter.value: top_k_abs keeps this many groups, a whole number from 1 to 16, got 17; change it",
    ],
    [
      "validate: {firstSeed: 10100}",
      "validate.firstSeed: the seeds 10100 to 10355 overlap the warm start's, 10000 to 19999; choose another validate.firstSeed",
    ],
    [
      "validate: {firstSeed: 23199}",
      "validate.firstSeed: the seeds 23199 to 23454 overlap the rollout's, 20000 to 23199; choose another validate.firstSeed",
    ],
    ["rollout: {firstSeed: 4294967295}", "rollout.firstSeed: the last board's seed is above 2^32 - 1; lower it"],
    [
      "supervisor: {heartbeatDeadlineMs: 900}",
      "supervisor.heartbeatDeadlineMs: Too small: expected number to be >=1000, got 900",
    ],
    [
      "metrics: {host: 0.0.0.0}",
      "metrics.host: 0.0.0.0 can be reached from other machines; set metrics.token, or use 127.0.0.1",
    ],
    [
      "transport: {listen: 'ws://0.0.0.0:0'}",
      "transport.listen: ws://0.0.0.0:0 can be reached from other machines, but only this machine's actors use it; use 127.0.0.1, and join.listen for other machines",
    ],
    [
      "transport: {listen: 'nats://broker.example:4222'}",
      "transport.listen: nats://broker.example:4222 can be reached from other machines; set transport.token, which the broker asks for",
    ],
    [
      "{transport: {listen: 'nats://127.0.0.1:4222'}, join: {samplerToken: a-long-enough-token}}",
      "join.samplerToken: a broker cannot limit a token to one role; use join.token",
    ],
    [
      "transport: {listen: 'nats://ann:secret@127.0.0.1:4222'}",
      "transport.listen: the address has a user or a password, which no actor sends; leave it out, and set transport.token",
    ],
    [
      "join: {listen: 'ws://ann:secret@127.0.0.1:0'}",
      "join.listen: the address has a user or a password, which no actor sends; leave it out, and set join.token",
    ],
    ["join: {listen: nowhere}", "join.listen: nowhere is not an address; write ws://HOST:PORT"],
    [
      "join: {listen: 'ws://0.0.0.0:7000'}",
      "join.listen: ws://0.0.0.0:7000 can be reached from other machines; set join.token (or samplerToken, envServerToken), or use 127.0.0.1",
    ],
    [
      "join: {listen: 'ws://[::]:7000'}",
      "join.listen: ws://[::]:7000 can be reached from other machines; set join.token (or samplerToken, envServerToken), or use 127.0.0.1",
    ],
    [
      "join: {listen: 'wss://127.0.0.1:0'}",
      "join.listen: wss:// needs a certificate; set join.certFile and join.keyFile",
    ],
    [
      "join: {clientCaFile: ca.pem}",
      "join.listen: ca.pem is not read without TLS; change the address to wss://, or leave the file out",
    ],
    [
      "join: {token: a-long-enough-token, samplerToken: a-long-enough-token}",
      "join.token: two of join.token, join.samplerToken and join.envServerToken are equal, so a token for one role would allow both; make them different",
    ],
    [
      "sampler: {count: 0}\njoin: {listen: null}",
      "sampler.count: the count is 0, and with join.listen null no other machine can lend any; raise the count, or set join.listen",
    ],
    [
      "actors: workers\nsampler: {count: 0}",
      "sampler.count: the count is 0, and with actors workers no other machine can lend any; raise the count",
    ],
    [
      "sampler: {count: 2000}",
      "sampler.count: 2000 is more than the 1024 processes allowed on one machine; lower it, or let other machines lend samplers",
    ],
  ])("%s", (yaml, fault) => {
    const [found, ...further] = faults(layer(yaml));
    expect([found?.replace(/^mine\.yaml: /, ""), further]).toEqual([fault, []]);
  });

  test("allow k1 in the reward, and as a loss where RAGEN's own runs are compared with", () => {
    expect(faults(layer("learner: {kl: {coefficient: 0.1, estimator: k1, place: reward}}"))).toEqual([]);
    expect(faults(layer("prompt: {compat: ragen-v1}\nlearner: {kl: {coefficient: 0.1, estimator: k1}}"))).toEqual([]);
    // A ladder may raise it from 0.
    expect(faults(layer("learner: {kl: {estimator: k1}}\nhealth: {ladder: [raise-kl]}")).length).toBe(1);
    expect(faults(layer("learner: {kl: {estimator: k2}}\nhealth: {ladder: [raise-kl]}"))).toEqual([]);
  });

  test.each([
    [
      "rollout: {groupSize: 1}\nlearner: {algorithm: ppo, filter: {strategy: all}, resampleRoundsMax: 1}",
      "learner.resampleRoundsMax",
    ],
    [
      "rollout: {groupSize: 1}\nlearner: {algorithm: ppo, filter: {strategy: all}, advantage: {softReweight: true}}",
      "learner.advantage.softReweight",
    ],
    ["rollout: {groupSize: 1}\nlearner: {algorithm: hybrid, filter: {strategy: all}}", "hybrid compares"],
    ["rollout: {groupSize: 1}\nlearner: {algorithm: gigpo, filter: {strategy: all}}", "gigpo compares"],
  ])("need groups that can be compared: %s", (yaml, what) => {
    const [found, ...further] = faults(layer(yaml));
    expect(found).toStartWith(`mine.yaml: rollout.groupSize: ${what}`);
    expect(further).toEqual([]);
  });

  test("name options that the env does not take", () => {
    expect(faults(layer("env: {options: {colour: red}}"))[0]).toStartWith("mine.yaml: env.options: ");
  });

  test("hold at their edges", () => {
    const edge =
      "learner: {minibatch: 128, filter: {value: 0.0625}}\nvalidate: {firstSeed: 23200}\n" +
      "supervisor: {heartbeatDeadlineMs: 1000}\nmetrics: {host: '::1'}";
    expect(faults(layer(edge))).toEqual([]);
  });

  test("are all reported at once", () => {
    expect(faults(layer("learner: {minibatch: 999, mode: async}\nmodel: {kvHeads: 3}")).length).toBe(3);
  });
});

describe("a key that the run would not read", () => {
  test.each([
    ["learner: {algorithm: grpo, lambda: 0.9}", "learner.lambda is not read by the estimator grpo; leave it out"],
    ["learner: {algorithm: ppo, gammaTurn: 0.9}", "learner.gammaTurn is not read by the estimator gae; leave it out"],
    ["learner: {stalenessMax: 2}", "learner.stalenessMax is not read while learner.mode is sync; leave it out"],
    [
      "learner: {kl: {estimator: k2}}",
      "learner.kl.estimator is not read while learner.kl.coefficient is 0; leave it out",
    ],
    [
      "learner: {kl: {coefficient: 0.1, target: 1}}",
      "learner.kl.target is not read while learner.kl.control is fixed; leave it out",
    ],
    [
      "learner: {filter: {strategy: all, value: 0.5}}",
      "learner.filter.value is not read while learner.filter.strategy is all; leave it out",
    ],
    [
      "learner: {rewardNormalization: {grouping: batch}}",
      "learner.rewardNormalization.grouping is not read while learner.rewardNormalization.method is identity; leave it out",
    ],
    [
      "learner: {filter: {strategy: all}, advantage: {filterLossScaling: linear}}",
      "learner.advantage.filterLossScaling is not read while learner.filter.strategy is all; leave it out",
    ],
    ["model: {lora: {alpha: 8}}", "model.lora.alpha is not read while model.lora.rank is 0; leave it out"],
    ["actors: workers\njoin: {listen: null}", "join.listen is not read unless actors is processes; leave it out"],
    [
      "engine: {name: eager, threads: 2}",
      "engine.threads is not read by engine eager, which computes in one thread; leave it out",
    ],
    ["prompt: {contextTurnsMax: 3}", "prompt.contextTurnsMax is not read while prompt.context is full; leave it out"],
    [
      "warmStart: {enabled: false, boards: 5}",
      "warmStart.boards is not read while warmStart.enabled is false; leave it out",
    ],
    [
      "warmStart: {imitate: demonstrator, plays: 5}",
      "warmStart.plays is not read while warmStart.imitate is demonstrator; leave it out",
    ],
  ])("is refused: %s", (yaml, fault) => {
    expect(faults(layer(yaml))).toEqual([`mine.yaml: ${fault}`]);
  });

  test("is no fault of a preset whose choice a later layer changed", () => {
    const preset = layer("learner: {algorithm: ppo, lambda: 0.9}", "preset.yaml");
    const choice = oneValue("--learner.algorithm=grpo", "learner.algorithm", "grpo");
    expect(faults(preset, choice)).toEqual([]);
    expect(faults(preset, choice, oneValue("--learner.gamma=1", "learner.gamma", 1))).toEqual([
      "--learner.gamma=1: learner.gamma is not read by the estimator grpo; leave it out",
    ]);
  });

  test.each([
    ["health: {ladder: [kl-cov]}\nlearner: {covariance: {share: 0.02}}", "health.ladder", []],
    ["health: {ladder: [raise-kl]}\nlearner: {kl: {coefficient: 0, estimator: k1}}", "health.ladder", []],
    ["engine: {url: 'http://127.0.0.1:8801'}\nsampler: {engine: vllm}", "sampler.engine", "own"],
  ])("is no fault of a preset whose other choice a later layer changed: %s", (yaml, path, value) => {
    expect(faults(layer(yaml, "preset.yaml"), oneValue("flag", path, value))).toEqual([]);
  });

  test.each([
    "learner: {algorithm: ppo, lambda: 0.9, mode: async, stalenessMax: 2}",
    "learner: {covariance: {share: 0.02}}\nhealth: {ladder: [kl-cov]}",
    "learner: {filter: {strategy: all}, advantage: {filterLossScaling: linear}}\nhealth: {ladder: [tighten-filter]}",
  ])("may be set where it is read: %s", (yaml) => {
    expect(faults(layer(yaml))).toEqual([]);
  });
});

describe("a key of an earlier version", () => {
  test.each([
    [
      "learner: {algorithm: gigpo, gigpo: {normalise: mean}}",
      "learner.gigpo.normalise is now learner.gigpo.normalize; write that key",
    ],
    ["health: {filterFactor: 0.25}", "health.filterFactor is removed: it is always 0.5; leave it out"],
    [
      "transport: {askDeadlineMs: 30000}",
      "transport.askDeadlineMs is removed: it is 1.2 times envServer.answerMsMax; leave it out",
    ],
  ])("is refused in one line: %s", (yaml, fault) => {
    expect(faults(layer(yaml))).toEqual([`mine.yaml: ${fault}`]);
    const [path] = fault.split(" ");
    expect(() => runKeys.value(path!, "1")).toThrow(new ConfigError(fault));
  });

  test("is none of today's, and a new name is one", () => {
    const today = runKeys.paths();
    for (const [path, fate] of Object.entries(FORMER_KEYS)) {
      expect(today).not.toContain(path);
      if ("to" in fate) expect(today).toContain(fate.to);
    }
  });

  test("is read in the config of a recorded run, unless its value was another than today's", () => {
    const stored = {
      learner: { gigpo: { normalise: "mean", turnWeight: 1 }, brokenUpdatesMax: 5 },
      health: { filterFactor: 0.25 },
      supervisor: { heartbeatMs: 200 },
    };
    expect(upgraded(stored)).toEqual({
      learner: { gigpo: { normalize: "mean" } },
      health: { filterFactor: 0.25 },
      supervisor: {},
    });
    expect(stored.learner.gigpo.normalise).toBe("mean");
  });
});
