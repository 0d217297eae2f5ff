/**
 * The tensorflow engine on a real libtensorflow against the compiled engine. It needs one (`bun run setup tensorflow`); the errors
 * without one are tested everywhere.
 */
import { describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import { Decoder } from "../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import type { Engine } from "../../../model/engine/engine.ts";
import { findLibtensorflow } from "../../../model/engine/tensorflow/find.ts";
import { configProto, Library } from "../../../model/engine/tensorflow/library.ts";
import type { Sequence } from "../../../model/learn/batch.ts";
import { sequence } from "../../../model/rng.ts";
import { describeWhere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { farthest } from "../farthest.ts";
import { tinyModel, tinyParameters, tinySequences, trainTiny } from "../policy/tiny-policy.ts";
import { engines, libtensorflow } from "./engines.ts";

const folder = temporaryFolder();

const nowhere = { named: undefined, own: undefined, home: undefined, pythonRoots: [] };

describe("finding libtensorflow", () => {
  const place = (path: string) => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), "");
    return join(folder, path);
  };

  test("takes the file or the folder that LIBTENSORFLOW_PATH names, and nothing else", () => {
    const file = place("named/libtensorflow.so.2");
    const wheel = place("wheel/libtensorflow_cc.so.2");
    expect(findLibtensorflow({ ...nowhere, named: file })).toBe(file);
    expect(findLibtensorflow({ ...nowhere, named: dirname(file) })).toBe(file);
    expect(findLibtensorflow({ ...nowhere, named: dirname(wheel) })).toBe(wheel);
    const missing = join(folder, "missing");
    expect(() => findLibtensorflow({ ...nowhere, named: missing })).toThrow(
      new Error(
        `LIBTENSORFLOW_PATH (${missing}) names no file, and no folder with a libtensorflow; correct or unset it`,
      ),
    );
  });

  test("finds the wheel of the newest Python of an environment", () => {
    place("env/lib/python3.9/site-packages/tensorflow/libtensorflow_cc.so.2");
    const newest = place("env/lib/python3.11/site-packages/tensorflow/libtensorflow_cc.so.2");
    expect(findLibtensorflow({ ...nowhere, pythonRoots: [join(folder, "env")] })).toBe(newest);
  });
});

test("the configuration is TensorFlow's ConfigProto, with any number of threads", () => {
  const growth = [0x32, 2, 0x20, 1];
  expect([...configProto({ threads: 4, device: "auto" })]).toEqual([0x10, 4, ...growth]);
  // A varint has 7 bits a byte, the lowest first: 200 = 1 * 128 + 72.
  expect([...configProto({ threads: 200, device: "cuda" })]).toEqual([0x10, 0x80 | 72, 1, ...growth]);
  const noGpu = [0x0a, 7, 0x0a, 3, 0x47, 0x50, 0x55, 0x10, 0];
  expect([...configProto({ threads: 4, device: "cpu" })]).toEqual([0x10, 4, ...noGpu, ...growth]);
});

describe("a file that is no libtensorflow", () => {
  test.each([
    [
      "no library",
      () => {
        const file = join(folder, "text.so");
        writeFileSync(file, "not a library");
        return file;
      },
    ],
    [
      "another library, without its functions",
      () => {
        const root = dirname(Bun.resolveSync("onnxruntime-node/package.json", import.meta.dir));
        return join(root, "bin/napi-v6", process.platform, process.arch, "libonnxruntime.so.1");
      },
    ],
  ])("%s: one clear line that names it", (_, make) => {
    const path = make();
    expect(() => new Library(path, { threads: 1, device: "cpu" })).toThrow(
      expect.objectContaining({
        name: "LibraryError",
        message: expect.stringContaining(`${path} cannot be used as libtensorflow: `),
      }),
    );
  });
});

const found = engines.find(([name]) => name === "tensorflow")?.[1];

describeWhere(
  found === undefined ? "no libtensorflow; `bun run setup tensorflow` gets one" : null,
  "on a real libtensorflow",
  () => {
    const engine = found as Engine;
    const uniform = sequence(5, "sequences");
    const draw = (count: number) => tinySequences(count, uniform);
    const limits = { tokensMax: 32, lengthMultiple: 4, widthMultiple: 4 };
    const settings = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 };

    const train = (on: Engine, batches: Sequence[][]) => trainTiny(on, batches, { limits, settings });

    test("20 training steps have the compiled engine's losses and weights", async () => {
      const batches = Array.from({ length: 20 }, () => draw(6));
      const compiled = train(compiledEngine({ threads: 1 }), batches);
      for await (const { loss, parameters } of train(engine, batches)) {
        const { value } = await compiled.next();
        expect(Math.abs(loss - value!.loss)).toBeLessThan(1e-4);
        expect(farthest(parameters, value!.parameters)).toBeLessThan(1e-4);
      }
    });

    test("100 training steps, and as many of decoding, leave no tensor behind", async () => {
      const batches = new Array<Sequence[]>(100).fill(draw(2));
      const steps = train(engine, batches);
      await steps.next();
      const decoder = new Decoder(engine, tinyModel, tinyParameters().flat, { slots: 2, capacity: 120 });
      await decoder.append([0, 1], [[1, 2], [3]]);
      await decoder.step([0, 1], [1, 2]);
      const { binding } = tf.findBackend("tensorflow") as unknown as { binding: Library };
      const before = { handles: binding.getNumOfTensors(), tensors: tf.memory().numTensors };
      for await (const { loss } of steps) expect(loss).toBeFinite();
      for (let i = 0; i < 100; i++) await decoder.step([0, 1], [i % 12, (i * 7) % 12]);
      expect({ handles: binding.getNumOfTensors(), tensors: tf.memory().numTensors }).toEqual(before);
    }, 300_000);

    test("throws TensorFlow's message for an invalid operation", () => {
      const { binding } = tf.findBackend("tensorflow") as unknown as { binding: Library };
      const tensor = binding.createTensor([2], 1, Float32Array.of(1, 2));
      expect(() => binding.executeOp("Reshape", [], [tensor, tensor], 1)).toThrow(/^tensorflow: Reshape: /);
      expect(() => binding.executeOp("NoSuchOperation", [], [], 1)).toThrow(/^tensorflow: NoSuchOperation: /);
      binding.deleteTensor(tensor);
      expect(() => binding.tensorDataSync(tensor)).toThrow(
        new Error(`tensorflow: tensor ${tensor} does not exist, or was deleted`),
      );
    });

    test.skipIf(Bun.which("nvidia-smi") !== null)("a missing GPU is never replaced by the CPU", () => {
      expect(() => new Library(libtensorflow!, { threads: 1, device: "cuda" })).toThrow(
        /^--device cuda: TensorFlow .* in .* finds no GPU, only .*CPU:0/,
      );
    });
  },
);
