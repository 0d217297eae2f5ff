import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { composeRunConfig, describeConfig, RunConfig, runKeys, withoutSecrets } from "../../../actors/config/config.ts";
import { ConfigError } from "../../../actors/config/error.ts";
import { type Layer, lastToSet, merge, oneValue, parseLayer } from "../../../actors/config/layers.ts";
import { filterRule } from "../../../actors/training/update-settings.ts";
import type { FilterRule } from "../../../model/learn/filter/filter.ts";

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
        // A value between two mappings hides the lower one, which only merging from the left can know.
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
      new ConfigError("--a.4=1: no item 4 in a list of 1; the first is 0"),
    );
  });

  test("cannot reach a prototype", () => {
    expect(faults(layer("__proto__: {polluted: true}"))).toEqual(["mine.yaml: unknown key __proto__"]);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  });
});

describe("rules across keys", () => {
  test.each([
    [
      "rollout: {groupSize: 1}\nlearner: {filter: {strategy: all}}",
      "rollout.groupSize: grpo compares episodes within a group, so groupSize must be at least 2; use ppo for groups of 1",
    ],
    [
      "learner: {mode: async}",
      "learner.stalenessMax: async mode plays while it learns, so stalenessMax must be at least 1; use sync for strictly on-policy",
    ],
    [
      "env: {tag: SimpelSokoban}",
      'env.tag: unknown env tag "SimpelSokoban"; nearest: SimpleSokoban, LargerSokoban, CoordSokoban',
    ],
    [
      "learner: {kl: {coefficient: 0.1, estimator: k1}}",
      "learner.kl.estimator: as a loss k1 has no gradient on average; use k3, or place: reward, or prompt.compat for RAGEN's own runs",
    ],
    [
      "learner: {minibatch: 129}",
      "learner.minibatch: 129 is more than the 128 trajectories of an update (rollout.groups x rollout.groupSize)",
    ],
    [
      "rollout: {replyTokensMax: 360}",
      "rollout.replyTokensMax: a reply of 360 tokens leaves no room for a prompt in rollout.contextTokensMax, 360",
    ],
    [
      "prompt: {layout: ragen-v1, context: single_turn}",
      "prompt.context: ragen-v1 has no message that sums up; take the layout ragen-v2 or compact",
    ],
    [
      "model: {heads: 3, kvHeads: 1}",
      "model.heads: 3 heads do not split a width of 128 into even parts; rotary positions need them even",
    ],
    ["model: {kvHeads: 3}", "model.kvHeads: 3 does not divide model.heads, 4"],
    ["learner: {filter: {value: 0.05}}", "learner.filter.value: 0.05 of 16 groups is none; raise it to 0.0625 or more"],
    ["learner: {filter: {value: 4}}", "learner.filter.value: top_ratio takes a share above 0 and up to 1, got 4"],
    [
      "learner: {filter: {strategy: top_k_abs, value: 17}}",
      "learner.filter.value: top_k_abs keeps a count of groups from 1 to 16, got 17",
    ],
    [
      "validate: {firstSeed: 10100}",
      "validate.firstSeed: boards 10100 to 10355 meet the warm start's 10000 to 19999; validate on boards of their own",
    ],
    [
      "validate: {firstSeed: 23199}",
      "validate.firstSeed: boards 23199 to 23454 meet the rollout's 20000 to 23199; validate on boards of their own",
    ],
    ["rollout: {firstSeed: 4294967295}", "rollout.firstSeed: the boards' seeds pass 2^32 - 1; start lower"],
    [
      "envServer: {answerMsMax: 30000}",
      "envServer.answerMsMax: samplers wait 30000 ms for an answer (transport.askDeadlineMs); an env server must give up sooner, got 30000",
    ],
    [
      "supervisor: {heartbeatDeadlineMs: 900}",
      "supervisor.heartbeatDeadlineMs: 900 ms allows not even 2 heartbeats of 500 ms; raise it",
    ],
    [
      "metrics: {host: 0.0.0.0}",
      "metrics.host: 0.0.0.0 can be reached by others, so metrics.token must be set; or keep 127.0.0.1",
    ],
    [
      "transport: {listen: 'ws://0.0.0.0:0'}",
      "transport.listen: ws://0.0.0.0:0 can be reached by others; actors of this machine meet on 127.0.0.1, others join at join.listen",
    ],
    ["join: {listen: nowhere}", "join.listen: nowhere is no address; write ws://HOST:PORT"],
    [
      "join: {listen: 'ws://0.0.0.0:7000'}",
      "join.listen: ws://0.0.0.0:7000 can be reached by others, so join.token (or samplerToken, envServerToken) must be set; or keep 127.0.0.1",
    ],
    [
      "join: {listen: 'ws://[::]:7000'}",
      "join.listen: ws://[::]:7000 can be reached by others, so join.token (or samplerToken, envServerToken) must be set; or keep 127.0.0.1",
    ],
    ["join: {listen: 'wss://127.0.0.1:0'}", "join.listen: wss:// needs join.certFile and join.keyFile"],
    ["join: {clientCaFile: ca.pem}", "join.listen: ca.pem is never read without TLS; listen on wss://"],
    [
      "join: {token: a-long-enough-token, samplerToken: a-long-enough-token}",
      "join.token: two of join's tokens are the same, so one of them would allow too much",
    ],
    [
      "sampler: {count: 0}\njoin: {listen: null}",
      "sampler.count: 0 here, and nobody can lend any: join.listen is null",
    ],
    ["sampler: {count: 2000}", "sampler.count: 2000 processes on one machine; join from others instead"],
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

describe("the filter as the algorithm takes it", () => {
  const rule = (yaml: string) => filterRule(composeRunConfig([layer(`learner: {filter: {${yaml}}}`)]).learner.filter);

  test.each([
    ["strategy: all", { strategy: "all" }],
    ["value: 0.5", { strategy: "top_ratio", ratio: 0.5, type: "std" }],
    ["order: smallest", { strategy: "top_ratio", ratio: 0.25, type: "std_rev" }],
    [
      "strategy: top_p, value: 0.9, mode: softmax, metric: entropy",
      {
        strategy: "top_p",
        value: 0.9,
        mode: "softmax",
        epsilon: 0.01,
        metric: "entropy",
        order: "largest",
        includeZero: true,
      },
    ],
    [
      "strategy: min_p, includeZero: false",
      { strategy: "min_p", value: 0.25, metric: "reward_variance", order: "largest", includeZero: false },
    ],
  ])("%s", (yaml, expected) => {
    expect(rule(yaml)).toEqual(expected as FilterRule);
  });
});

describe("a key that nobody would read", () => {
  test.each([
    ["learner: {algorithm: grpo, lambda: 0.9}", "learner.lambda is never read by the estimator grpo; leave it out"],
    ["learner: {algorithm: ppo, gammaTurn: 0.9}", "learner.gammaTurn is never read by the estimator gae; leave it out"],
    [
      "learner: {stalenessMax: 2}",
      "learner.stalenessMax is never read in sync mode, where nothing is stale; leave it out",
    ],
    [
      "learner: {kl: {estimator: k2}}",
      "learner.kl.estimator is never read while learner.kl.coefficient is 0; leave it out",
    ],
    [
      "learner: {kl: {coefficient: 0.1, target: 1}}",
      "learner.kl.target is never read by the fixed controller; leave it out",
    ],
    [
      "learner: {filter: {strategy: all, value: 0.5}}",
      "learner.filter.value is never read while learner.filter.strategy is all; leave it out",
    ],
    [
      "learner: {rewardNormalization: {grouping: batch}}",
      "learner.rewardNormalization.grouping is never read by the method identity; leave it out",
    ],
    ["prompt: {contextTurnsMax: 3}", "prompt.contextTurnsMax is never read in the full context; leave it out"],
    ["warmStart: {enabled: false, boards: 5}", "warmStart.boards is never read without a warm start; leave it out"],
  ])("is refused: %s", (yaml, fault) => {
    expect(faults(layer(yaml))).toEqual([`mine.yaml: ${fault}`]);
  });

  test("is no fault of a preset whose choice a later layer changed", () => {
    const preset = layer("learner: {algorithm: ppo, lambda: 0.9}", "preset.yaml");
    const choice = oneValue("--learner.algorithm=grpo", "learner.algorithm", "grpo");
    expect(faults(preset, choice)).toEqual([]);
    expect(faults(preset, choice, oneValue("--learner.gamma=1", "learner.gamma", 1))).toEqual([
      "--learner.gamma=1: learner.gamma is never read by the estimator grpo; leave it out",
    ]);
  });

  test("may be set where it is read", () => {
    expect(faults(layer("learner: {algorithm: ppo, lambda: 0.9, mode: async, stalenessMax: 2}"))).toEqual([]);
  });
});
