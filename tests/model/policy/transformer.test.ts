/** The transformer, its gradients and one AdamW step against Hugging Face's Qwen2 (tests/golden/qwen2.py made the numbers). */
import { describe, test } from "bun:test";
import { engines } from "../engine/engines.ts";
import { expectGoldenStep } from "../learn/golden-step.ts";
import { goldenModel } from "./golden-model.ts";

const cases = engines.flatMap(([engineName, engine]) =>
  ["tied", "untied", "wide"].map((variant) => [variant, engineName, engine] as const),
);

describe.each(cases)("Qwen2 %s on the %s engine", (variant, _, engine) => {
  test("gives Hugging Face's logits, log-probabilities, gradients and AdamW step", async () => {
    await expectGoldenStep(engine, await goldenModel(variant));
  });
});
