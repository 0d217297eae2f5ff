/** Rotary frequencies against transformers 5.23 (ROPE_INIT_FUNCTIONS), heads of width 16. */
import { expect, test } from "bun:test";
import { type RopeScaling, rotaryFrequencies, rotaryTables } from "../../../model/policy/rope.ts";

const yarn = { kind: "yarn", betaFast: 32, betaSlow: 1, truncate: true } as const;

test.each<[string, number, RopeScaling, number[]]>([
  [
    "linear",
    10_000,
    { kind: "linear", factor: 4 },
    [0.25, 0.079056941, 0.025, 0.00790569466, 0.0025, 0.000790569466, 0.00025, 7.90569466e-5],
  ],
  [
    "llama3, as Llama 3.1 has it",
    500_000,
    { kind: "llama3", factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalLength: 8192 },
    [1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-5, 6.64786967e-6, 1.28917316e-6],
  ],
  [
    "llama3, as Llama 3.2 has it",
    500_000,
    { kind: "llama3", factor: 32, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalLength: 8192 },
    [1, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705, 8.5702559e-6, 1.66196742e-6, 3.22293289e-7],
  ],
  [
    "yarn, as Qwen2.5 has it",
    1_000_000,
    { ...yarn, factor: 4, originalLength: 32_768, attentionFactor: 0.1 * Math.log(4) + 1 },
    [1, 0.177827939, 0.0316227786, 0.00421755994, 0.0005, 4.44569851e-5, 7.90569356e-6, 1.40585337e-6],
  ],
  [
    "yarn with ends of its own",
    10_000,
    {
      ...yarn,
      factor: 8,
      originalLength: 256,
      attentionFactor: 1.2079441541679836,
      betaFast: 16,
      betaSlow: 2,
      truncate: false,
    },
    [1, 0.28740859, 0.0424417965, 0.00395284733, 0.00125, 0.000395284733, 0.000125, 3.95284733e-5],
  ],
])("%s", (_, theta, scaling, expected) => {
  const ours = rotaryFrequencies(16, theta, scaling);
  for (const [i, frequency] of expected.entries()) expect(Math.abs(ours[i]! / frequency - 1)).toBeLessThan(1e-6);
});

test("yarn's attention factor multiplies cosines and sines", () => {
  const scaling = { ...yarn, factor: 4, originalLength: 64, attentionFactor: 1.5 };
  const { cos, sin } = rotaryTables(3, 8, 10_000, scaling);
  for (let i = 0; i < cos.length; i++) expect(Math.hypot(cos[i]!, sin[i]!)).toBeCloseTo(1.5, 6);
});
