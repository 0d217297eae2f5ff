import { expect, test } from "bun:test";
import { ggufSettings, ggufTokenizer } from "../../../model/checkpoint/gguf-model.ts";
import type { ModelConfig } from "../../../model/policy/model-config.ts";
import type { RopeScaling } from "../../../model/policy/rope.ts";
import { tinyModel } from "../policy/tiny-policy.ts";

const settings = (ropeScaling: RopeScaling, more: Partial<ModelConfig> = {}) =>
  ggufSettings({ ...tinyModel, ropeScaling, ...more }, "name", 64);
const [factor, originalLength] = [4, 32];
const attentionFactor = 0.1 * Math.log(factor) + 1;
const yarn = {
  kind: "yarn",
  factor,
  originalLength,
  betaFast: 32,
  betaSlow: 1,
  attentionFactor,
  truncate: true,
} as const;
const llama3 = { kind: "llama3", factor, originalLength, lowFrequencyFactor: 1, highFrequencyFactor: 4 } as const;

test("rope scalings that llama.cpp computes are written", () => {
  expect(settings(yarn).get("qwen2.rope.scaling.type")).toEqual({ text: "yarn" });
  expect(settings(yarn).get("qwen2.rope.scaling.original_context_length")).toEqual({ u32: 32 });
  expect(settings(llama3, { qkvBias: false }).get("general.architecture")).toEqual({ text: "llama" });
});

test.each<[RopeScaling, string]>([
  [llama3, "llama.cpp has no rope scaling llama3 of qwen2; export to hf instead"],
  [{ ...yarn, betaFast: 16 }, "llama.cpp has no rope scaling yarn with other values than the defaults"],
  [{ ...yarn, betaSlow: 2 }, "yarn with other values"],
  [{ ...yarn, attentionFactor: 1 }, "yarn with other values"],
  [{ ...yarn, truncate: false }, "yarn with other values"],
])("a rope scaling that llama.cpp would compute differently is refused: %p", (scaling, message) => {
  expect(() => settings(scaling)).toThrow(message);
});

test("a special token without an embedding is not written", () => {
  const added_tokens = [{ id: 2, content: "<image>", special: true }];
  const tokenizer = { model: { vocab: { a: 0, b: 1 }, merges: [] }, pre_tokenizer: null, added_tokens };
  const special = { eos: 0, bos: null, pad: null, template: "" };
  const written = ggufTokenizer(tokenizer, { ...tinyModel, vocabulary: 2 }, special);
  expect(written.get("tokenizer.ggml.tokens")).toEqual({ texts: ["a", "b"] });
});
