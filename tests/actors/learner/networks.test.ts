import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { loadCheckpoint, saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { fill, learnerMemory, type Networks, startingNetworks } from "../../../actors/learner/networks.ts";
import { loadPretrained, policyOf, readPretrained } from "../../../actors/policy/pretrained.ts";
import { ModelConfig, VALUE_HEAD } from "../../../model/policy/model-config.ts";
import { layParameters, type Parameters, parameterCount } from "../../../model/policy/parameters.ts";
import { deviation } from "../../../model/statistics.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { configOf } from "../training/stage.ts";

const shape = { vocabulary: 12, width: 8, layers: 1, heads: 2, kvHeads: 1, headWidth: 4, hidden: 6 };

describe.each([true, false])("a learner's memory, embedding shared with the output: %p,", (tiedEmbedding) => {
  const model = ModelConfig.parse({ ...shape, tiedEmbedding });
  const count = parameterCount(model);

  test("holds no critic where none is needed", () => {
    const { policy, critic } = learnerMemory(model, "none", null);
    expect([policy.parameters.length, critic]).toEqual([count, null]);
  });

  test("is apart for a critic with a network of its own", () => {
    const { policy, critic } = learnerMemory(model, "separate", null);
    expect(critic!.memory.parameters.buffer).not.toBe(policy.parameters.buffer);
    expect(critic!.model.head).toBe("value");
  });

  test("takes parameters and both moments of a checkpoint that the run goes back to", () => {
    const { policy } = learnerMemory(model, "none", null);
    const saved = {
      parameters: policy.parameters.map((_, i) => i),
      moment: policy.moment.map((_, i) => i + 1),
      variance: policy.variance.map((_, i) => i + 2),
      step: policy.step,
    };
    fill(policy, saved);
    expect(policy).toMatchObject(saved);
  });

  test("begins with the policy, where the critic shares its network", () => {
    const { policy, critic } = learnerMemory(model, "shared", null);
    expect([policy.parameters.length, critic!.memory.parameters.length]).toEqual([count, count + shape.width]);
    critic!.memory.parameters[count - 1] = 7;
    expect(policy.parameters[count - 1]).toBe(7);
  });

  test.each(["separate", "shared"] as const)("comes back from a checkpoint, %s", async (backbone) => {
    const { policy, critic } = learnerMemory(model, backbone, null);
    for (const [k, memory] of [policy, critic!.memory].entries()) {
      for (const [j, part] of (["parameters", "moment", "variance"] as const).entries()) {
        memory[part].set(memory[part].map((_, i) => i + j / 4 + k / 16));
      }
    }
    const path = await saveCheckpoint(temporaryFolder(), {
      update: 3,
      model,
      tokenizer: "t",
      state: {},
      policy: { ...policy, step: 5 },
      critic: { ...critic!.memory, step: 6 },
      criticHead: critic!.model.head === "both" ? "both" : "value",
    });
    const again = learnerMemory(model, backbone, await loadCheckpoint(path));
    expect(again.critic!.memory).toEqual({ ...critic!.memory, step: 6 });
    expect([...again.policy.parameters]).toEqual([...policy.parameters]);
    expect([...again.policy.variance]).toEqual([...policy.variance]);
  });
});

test("a policy of another tokenizer is no start of a run", async () => {
  const small = { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 16 };
  const { model, dialogue } = policyOf(configOf({ model: small }));
  const start = async (tokenizer: string) => {
    const { policy } = learnerMemory(model, "none", null);
    policy.parameters.fill(0.25);
    const saved = { update: 3, model, tokenizer, state: {}, policy: { ...policy, step: 5 }, critic: null };
    const checkpoint = await saveCheckpoint(temporaryFolder(), saved);
    return startingNetworks(configOf({ model: { ...small, checkpoint }, warmStart: { enabled: false } }), model, null);
  };
  expect((await start(dialogue.digest)).policy.parameters[0]).toBe(0.25);
  await expect(start("another")).rejects.toThrow("it was trained with another tokenizer; use that run's model.path");
});

test("a policy whose weights a server of engine tinker keeps is no start of a run", async () => {
  const small = { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 16 };
  const { model, dialogue } = policyOf(configOf({ model: small }));
  const { policy } = learnerMemory(model, "none", null);
  const checkpoint = await saveCheckpoint(temporaryFolder(), {
    update: 3,
    model,
    tokenizer: dialogue.digest,
    state: {},
    policy,
    critic: null,
    served: "bunraku-3",
  });
  const config = configOf({ model: { ...small, checkpoint }, warmStart: { enabled: false } });
  await expect(startingNetworks(config, model, null)).rejects.toThrow(
    "its weights are at the server of engine tinker, as bunraku-3; export them there",
  );
});

describe.each(["separate", "shared"] as const)("a run with a critic, %s,", (backbone) => {
  const startOf = (model: object, learner: object) => {
    const config = configOf({ model, learner: { updates: 1, filter: { strategy: "all" }, ...learner } });
    return startingNetworks(config, policyOf(config).model, null);
  };
  const valued = (critic: string) => ({ algorithm: "ppo", critic: { backbone: critic } });
  const viewsOf = ({ critic }: Networks) => layParameters(critic!.model, critic!.memory.parameters).views;
  const headOf = (networks: Networks) => viewsOf(networks).get(VALUE_HEAD)!.values;

  test("begins with the pretrained model in the policy and in the critic's body, and a small value head", async () => {
    const path = join(import.meta.dir, "../../golden/checkpoints/qwen3");
    const { model } = readPretrained(path);
    const pretrained = layParameters(model);
    await loadPretrained(path, model, pretrained);
    const networks = await startOf({ path }, valued(backbone));
    expect(networks.policy.parameters).toEqual(pretrained.flat);
    const body = [...viewsOf(networks)].filter(([name]) => name !== VALUE_HEAD);
    expect(body.length).toBeGreaterThan(10);
    for (const [name, { values }] of body) expect(values).toEqual(pretrained.views.get(name)!.values);
    // Normal with deviation .02.
    const spread = deviation(headOf(networks), 0);
    expect([spread > 0.01, spread < 0.04]).toEqual([true, true]);
    const other = backbone === "shared" ? "separate" : "shared";
    expect(headOf(networks)).toEqual(headOf(await startOf({ path }, valued(other))));
  });

  test("begins with the fresh policy that it has without a critic, and a critic that is no copy of it", async () => {
    const small = { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 16 };
    const [networks, alone] = [await startOf(small, valued(backbone)), await startOf(small, {})];
    expect(networks.policy.parameters).toEqual(alone.policy.parameters);
    const matrix = (views: Parameters["views"]) => views.get("model.layers.0.mlp.up_proj.weight")!.values;
    const [own, its] = [
      matrix(layParameters(networks.model, networks.policy.parameters).views),
      matrix(viewsOf(networks)),
    ];
    if (backbone === "shared") expect(its).toEqual(own);
    else expect(its).not.toEqual(own);
    expect(headOf(networks).every((value) => value !== 0)).toBe(true);
  });
});
