import { afterAll, describe, expect, test } from "bun:test";
import { loadCheckpoint, saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { fill, learnerMemory, startingNetworks } from "../../../actors/learner/networks.ts";
import { policyOf } from "../../../actors/policy/policy-of-run.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { parameterCount } from "../../../model/policy/parameters.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";
import { configOf } from "../training/stage.ts";

afterAll(removeTemporaryFolders);

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
  await expect(start("another")).rejects.toThrow("it was trained with another tokenizer; use its model.path");
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
