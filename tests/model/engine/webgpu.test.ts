/**
 * Engine compiled on onnxruntime's WebGPU against the CPU. It needs a Vulkan adapter, which may be software (Mesa's lavapipe, 25
 * or later); the errors without one are tested everywhere.
 */
import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import { Decoder } from "../../../model/decode/decoder.ts";
import { type CompiledEngine, compiledEngine } from "../../../model/engine/compiled.ts";
import { deviceCheck } from "../../../model/engine/device-check.ts";
import { type Engine, f32 } from "../../../model/engine/engine.ts";
import { type Adapter, webgpuAdapter } from "../../../model/engine/vulkan.ts";
import type { UpdateSettings } from "../../../model/learn/update/types.ts";
import { update } from "../../../model/learn/update/update.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { sequence } from "../../../model/rng.ts";
import { describeWhere } from "../../needs.ts";
import { stepSlots } from "../decode/steps.ts";
import { farthest } from "../farthest.ts";
import { networks, play, rewards, settings } from "../learn/update/stage.ts";
import { tinyModel, tinyParameters, tinySequences, trainTiny } from "../policy/tiny-policy.ts";

const LLVMPIPE: Adapter = { name: "llvmpipe (LLVM 15.0.6, 256 bits)", kind: "software" };
const H200: Adapter = { name: "NVIDIA H200", kind: "discrete" };
const UHD: Adapter = { name: "Intel UHD", kind: "integrated" };

describe("the adapter", () => {
  test("is the discrete GPU, then the integrated one", () => {
    expect(webgpuAdapter([LLVMPIPE, UHD, H200], false)).toBe("NVIDIA H200");
    expect(webgpuAdapter([LLVMPIPE, UHD], false)).toBe("Intel UHD");
  });

  test("that is software is refused unless the config asks for it, and its name says so", () => {
    expect(() => webgpuAdapter([LLVMPIPE], false)).toThrow(
      new Error(
        `device webgpu: Vulkan lists no GPU, only ${LLVMPIPE.name}, which is software; choose --device cpu, or allow it with --engine.softwareAdapter=true`,
      ),
    );
    expect(webgpuAdapter([LLVMPIPE], true)).toBe(`${LLVMPIPE.name}, software`);
  });

  test("that does not exist gives an error", () => {
    expect(() => webgpuAdapter([], true)).toThrow(new Error("device webgpu: Vulkan lists no GPU; install its driver"));
  });
});

const cpu = compiledEngine({ threads: 1 });

/** The engine, or the reason why it does not start here. An engine that starts must compute right. */
async function start(): Promise<CompiledEngine | string> {
  try {
    const engine = compiledEngine({ threads: 1, device: "webgpu", softwareAdapter: true });
    await engine.compile("probe", ({ x }) => ({ y: tf.neg(x!) }), { x: f32(1) });
    return engine;
  } catch (error) {
    return (error as Error).message;
  }
}

const started = await start();

describeWhere(typeof started === "string" ? started : null, "on a WebGPU adapter", () => {
  const webgpu = started as CompiledEngine;

  test("the check at start-up passes, and no operator falls back to the CPU", async () => {
    expect(await deviceCheck(webgpu)).toBe("no operator falls back to the CPU");
  }, 300_000);

  test("5 training steps have the CPU's losses and weights", async () => {
    const batches = Array(5).fill(tinySequences(6, sequence(5, "sequences")));
    const limits = { tokensMax: 128, lengthMultiple: 16, widthMultiple: 16 };
    // An epsilon near the gradients' own size: without one, a gradient of nearly 0 is a whole step either way.
    const settings = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-2, weightDecay: 0.01, clipNorm: 1 };
    const train = (engine: Engine) => Array.fromAsync(trainTiny(engine, batches, { limits, settings }));
    const [expected, got] = [await train(cpu), await train(webgpu)];
    const losses = (steps: typeof got) => steps.map(({ loss }) => loss);
    expect(losses(expected)[4]!).toBeLessThan(losses(expected)[0]!);
    expect(farthest(losses(got), losses(expected))).toBeLessThan(1e-4);
    expect(farthest(got.at(-1)!.parameters, expected.at(-1)!.parameters)).toBeLessThan(1e-4);
  }, 300_000);

  /** Every kind of loss at once: clipped ratio, entropy, KL, and values clipped. */
  const ppo: UpdateSettings = {
    ...settings,
    estimator: { kind: "gae", gamma: 1, lambda: 1, rewardAt: "turns" },
    policy: { ...settings.policy, kl: { estimator: "k3", coefficient: 0.1 } },
    critic: { backbone: "separate", valueClip: 0.5, optimizer: settings.optimizer },
    limits: { tokensMax: 256, lengthMultiple: 16, widthMultiple: 16 },
  };

  test("an update by PPO with critic and reference moves weights as the CPU does", async () => {
    const flat = tinyParameters({ ...tinyModel, layers: 1 }).flat;
    const trained = async (engine: Engine) => {
      const stage = await networks(flat, { critic: true, reference: flat.slice() }, engine);
      await update(stage, play(flat, rewards, 3), ppo);
      return stage.parameters.flat;
    };
    const [expected, got] = [await trained(cpu), await trained(webgpu)];
    expect(farthest(expected, flat)).toBeGreaterThan(1e-3);
    expect(farthest(got, expected)).toBeLessThan(1e-4);
  }, 300_000);

  test.each([
    ["onnxruntime's own attention", 16],
    ["attention by definition", 8],
  ])(
    "20 greedy tokens are the CPU's, with %s",
    async (_, headWidth) => {
      const model = ModelConfig.parse({
        vocabulary: 24,
        width: 32,
        layers: 2,
        heads: 4,
        kvHeads: 2,
        headWidth,
        hidden: 24,
      });
      const decode = async (engine: Engine) => {
        const decoder = new Decoder(engine, model, tinyParameters(model, 1, 10).flat, { slots: 20, capacity: 40 });
        const rows = (logits: Float32Array) => [0, 1].map((row) => logits.slice(row * 24, (row + 1) * 24));
        const best = (logits: Float32Array) => logits.indexOf(Math.max(...logits));
        // WebGPU bounds the arrays that a kernel reads and writes, often at 16.
        const others = Array.from({ length: 18 }, (_, i) => i + 2);
        await decoder.append(
          others,
          others.map((slot) => [slot, 1]),
        );
        let logits = rows(await decoder.append([0, 1], [[1, 2, 3], [4]]));
        const said: number[][] = [];
        for (let i = 0; i < 20; i++) {
          const next = logits.map(best);
          said.push(next);
          logits = rows(await stepSlots(decoder, next));
        }
        return { said, last: logits.flatMap((row) => [...row]) };
      };
      const [expected, got] = [await decode(cpu), await decode(webgpu)];
      expect(got.said).toEqual(expected.said);
      expect(farthest(got.last, expected.last)).toBeLessThan(1e-3);
    },
    300_000,
  );

  test("no operator of these tests ran on the CPU", () => {
    expect([...webgpu.onCpu]).toEqual([]);
  });
});
