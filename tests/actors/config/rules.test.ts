/** Rules across keys: for each rule a config that breaks the rule, and a similar config that keeps the rule. */
import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { parseLayer } from "../../../actors/config/layers.ts";
import { heartbeatMs } from "../../../actors/config/machine.ts";
import { askDeadlineMs } from "../../../actors/config/rollout.ts";
import { ConfigError } from "../../../actors/errors.ts";

/** The faults of a config, without the file's name. */
function faults(yaml: string): string[] {
  try {
    composeRunConfig([parseLayer(yaml, "f")]);
  } catch (error) {
    if (error instanceof ConfigError) return error.message.split("\n").map((line) => line.replace(/^f: /, ""));
    throw error;
  }
  return [];
}

const url = "engine: {url: 'http://127.0.0.1:8801'}";
const remote = "env: {tag: Remote, options: {url: 'http://127.0.0.1:1'}}";
const token = "a-long-enough-token";
const alone = "rollout: {groupSize: 1}";
const two = "{tag: SimpleSokoban}, {tag: LargerSokoban}";

test.each([
  [
    "sampler: {engine: vllm}\nrollout: {temperature: 0.7}",
    [
      "engine.url: sampler.engine vllm needs the address of its server",
      "model.lora.rank: sampler.engine vllm writes replies only with LoRA adapters",
      "rollout.temperature: sampler.engine vllm reports log-probabilities at temperature 1, got 0.7",
    ],
  ],
  [
    `${url}\nsampler: {engine: sglang}\nmodel: {path: m}\nwarmStart: {enabled: false}`,
    ["model.lora.rank: sampler.engine sglang writes replies only with LoRA adapters"],
  ],
  [
    `${url}\nsampler: {engine: sglang}\nmodel: {lora: {rank: 8}, pretrainedOnly: true}`,
    ["model.lora.rank: sampler.engine sglang writes replies only with LoRA adapters"],
  ],
  [
    "engine: {name: tinker, url: 'http://127.0.0.1:1'}\nsampler: {engine: vllm}\nmodel: {path: m}\nwarmStart: {enabled: false}",
    ["sampler.engine: engine tinker samples on its own server"],
  ],
  ["model: {lora: {rank: 8}}", ["model.lora.rank: adapters need a pretrained model"]],
  [
    "model: {lora: {rank: 8}, pretrainedOnly: true, checkpoint: runs/a}\nwarmStart: {enabled: false}",
    ["model.lora.rank: adapters need a pretrained model"],
  ],
  [
    "model: {width: 12}",
    ["model.heads: model.width / model.heads is 12 / 4; rotary positions need an even whole number"],
  ],
  [
    "env: {mix: [{tag: SimpleSokoban}]}\nrollout: {curriculum: {by: success}}",
    ["rollout.curriculum.by: a curriculum moves groups between the envs of env.mix; list at least 2 envs"],
  ],
  [
    `env: {mix: [${two}]}\nrollout: {groupSize: 1, curriculum: {by: reward}}\nlearner: {algorithm: expert-iteration}`,
    ["rollout.curriculum.by: a curriculum compares the episodes of one board"],
  ],
  [
    `env: {mix: [${two}]}\nrollout: {curriculum: {by: success, groupsMin: 9}}`,
    ["rollout.curriculum.groupsMin: 2 envs with 9 groups each need 18 groups, but an update has 16"],
  ],
  [
    "rollout: {onlineK: 2}\nlearner: {minibatch: 64}",
    ["rollout.onlineK: Online-k divides the episodes of an update into 2 minibatches; leave out learner.minibatch"],
  ],
  [
    `${alone}\nlearner: {algorithm: reinforce++-baseline, filter: {strategy: all}}`,
    ["rollout.groupSize: reinforce++-baseline compares episodes within a group"],
  ],
  [`${alone}\nlearner: {algorithm: tpo}`, ["rollout.groupSize: tpo compares episodes within a group"]],
  [
    "learner: {minibatch: 128}\nhealth: {ladder: [fresh-rollouts]}",
    ["health.ladder: an update takes one gradient step already"],
  ],
  [
    `${alone}\nlearner: {algorithm: expert-iteration}\nhealth: {ladder: [tighten-filter]}`,
    ["health.ladder: this run has no filter, so tighten-filter ranks groups by the std of their rewards"],
  ],
  ["env: {actionsPerTurnMax: 1}\nhealth: {ladder: [fewer-actions]}", ["health.ladder: a turn has one action already"]],
  [
    "learner: {covariance: {treatment: clip, bounds: [2, 2]}}",
    ["learner.covariance.bounds: the first must be below the second, got 2 and 2"],
  ],
  [
    "learner: {algorithm: tpo}\nhealth: {ladder: [clip-cov]}",
    ["health.ladder: the estimator tpo makes new advantages"],
  ],
  [
    "learner: {algorithm: kl-cov}\nhealth: {ladder: [kl-cov]}",
    ["health.ladder: learner.covariance.treatment is kl already"],
  ],
  [
    "learner: {filter: {strategy: top_k_abs, value: 2.5}}",
    ["learner.filter.value: top_k_abs keeps this many groups, a whole number from 1 to 16, got 2.5"],
  ],
  ["learner: {filter: {value: 1.5}}", ["learner.filter.value: top_ratio takes a share above 0 and up to 1, got 1.5"]],
  ["rollout: {firstSeed: 4294964097}", ["rollout.firstSeed: the last board's seed is above 2^32 - 1"]],
  [
    "env: {think: false, reasoningWeight: 0.5}",
    ["env.reasoningWeight: env.think is false, so there are no thoughts to judge"],
  ],
  [
    "env: {think: false}\nhealth: {collapse: {everyUpdates: 1}}",
    ["health.collapse.everyUpdates: env.think is false, so there are no thoughts to compare"],
  ],
  ["engine: {name: eager, device: webgpu}", ["engine.device: engine eager computes on the CPU only; for webgpu"]],
  ["engine: {name: tensorflow, device: webgpu}", ["engine.device: engine tensorflow computes on cpu or cuda"]],
  ["engine: {softwareAdapter: true}", ["engine.softwareAdapter: only engine.device webgpu reads it"]],
  ["engine: {device: cuda, tf32: true}", ["engine.tf32: only engine compiled on device cuda reads it"]],
  [
    "engine: {bfloat16Products: gradients}",
    [
      "engine.bfloat16Products: only engine compiled on device cpu rounds products; set engine.name to compiled and engine.device to cpu",
    ],
  ],
  [
    "engine: {name: eager, device: cpu, bfloat16Products: all}",
    ["engine.bfloat16Products: only engine compiled on device cpu rounds products"],
  ],
  ["sampler: {count: 1025}", ["sampler.count: 1025 is more than the 1024 processes allowed on one machine"]],
  ["join: {listen: 'wss://127.0.0.1:0', certFile: c.pem}", ["join.listen: wss:// needs a certificate"]],
  ["join: {listen: 'WSS://127.0.0.1:0'}", ["join.listen: wss:// needs a certificate"]],
  ["join: {listen: 'ws://ann@127.0.0.1:0'}", ["join.listen: the address has a user or a password"]],
  [`transport: {listen: 'nats://', token: ${token}}`, ["transport.listen: nats:// is not the address of a broker"]],
  [
    `transport: {listen: 'nats://127.0.0.1:4222'}\njoin: {envServerToken: ${token}}`,
    ["join.envServerToken: a broker cannot limit a token to one role"],
  ],
])("refuses %s", (yaml, starts) => {
  const found = faults(yaml);
  expect(found.map((fault, i) => fault.slice(0, starts[i]?.length))).toEqual(starts);
});

test.each([
  `${url}\nsampler: {engine: vllm}\nmodel: {path: m, lora: {rank: 8}}\nwarmStart: {enabled: false}`,
  `${remote}\nwarmStart: {boards: 1000, plays: 20}`,
  "model: {lora: {rank: 8}, pretrainedOnly: true}",
  "model: {width: 8}",
  `env: {mix: [${two}]}\nrollout: {curriculum: {by: success, groupsMin: 8}}`,
  "env: {mix: [{tag: SimpleSokoban, groups: 20}, {tag: LargerSokoban}]}\nrollout: {curriculum: {by: difficulty}}",
  `${alone}\nlearner: {algorithm: expert-iteration}`,
  "rollout: {onlineK: 2}\nhealth: {ladder: [fresh-rollouts]}",
  "learner: {minibatch: 127}\nhealth: {ladder: [fresh-rollouts]}",
  `${alone}\nlearner: {algorithm: ppo, filter: {strategy: top_k, metric: entropy}}\nhealth: {ladder: [tighten-filter]}`,
  "env: {mix: [{tag: SimpleSokoban, actionsPerTurnMax: 1}, {tag: LargerSokoban}]}\nhealth: {ladder: [fewer-actions]}",
  "learner: {filter: {value: 1}}",
  "warmStart: {enabled: false}\nvalidate: {firstSeed: 10100}",
  "rollout: {firstSeed: 4294964096}",
  "engine: {device: webgpu, softwareAdapter: true}",
  "engine: {name: compiled, device: cuda, tf32: true}",
  "engine: {device: cpu, bfloat16Products: all}",
  "engine: {name: compiled, device: cpu, bfloat16Products: all}",
  "sampler: {count: 1024}",
  `metrics: {host: 0.0.0.0, token: ${token}}`,
  `join: {listen: 'ws://0.0.0.0:7000', samplerToken: ${token}}`,
])("takes %s", (yaml) => expect(faults(yaml)).toEqual([]));

test("heartbeats and deadlines follow their settings; by default they are 500 ms and 30 s", () => {
  const { supervisor, envServer } = RunConfig.parse({});
  expect([heartbeatMs(supervisor), askDeadlineMs({ envServer })]).toEqual([500, 30_000]);
});
