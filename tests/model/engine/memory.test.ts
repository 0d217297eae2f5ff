/**
 * Arrays in a device's own memory, as on a GPU. The device here is a second piece of host memory, which onnxruntime can read: a
 * missing copy between the two gives wrong numbers. Runs are recorded as on CUDA. The CPU only repeats the run then, so a result that
 * is not restored is wrong too.
 */
import { dlopen, type Pointer } from "bun:ffi";
import { describe, expect, test } from "bun:test";
import { trainerMethods } from "../../../actors/learner/trainer.ts";
import { Decoder } from "../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { deviceCheck } from "../../../model/engine/device-check.ts";
import { type Engine, f32 } from "../../../model/engine/engine.ts";
import { TwinMemory } from "../../../model/engine/memory.ts";
import { Network } from "../../../model/learn/network.ts";
import { imitation } from "../../../model/learn/objective.ts";
import { layParameters, parameterCount } from "../../../model/policy/parameters.ts";
import { stepSlots } from "../decode/steps.ts";
import { model, play, rewards, settings, start } from "../learn/update/stage.ts";
import { tinyModel, tinyParameters } from "../policy/tiny-policy.ts";

const libc = dlopen("libc.so.6", {
  malloc: { args: ["u64"], returns: "ptr" },
  free: { args: ["ptr"], returns: "void" },
  memcpy: { args: ["ptr", "ptr", "u64"], returns: "ptr" },
}).symbols;

/** A device of its own, and how many bytes of it are taken. */
function device() {
  const sizes = new Map<Pointer, number>();
  const memory = new TwinMemory({
    allocate(bytes) {
      const address = Number(libc.malloc(bytes)) as Pointer;
      sizes.set(address, bytes);
      return address;
    },
    free(address) {
      if (!sizes.delete(address)) throw new Error(`${address} was freed before, or never taken`);
      libc.free(address);
    },
    send: (to, from, bytes) => void libc.memcpy(to, from, bytes),
    fetch: (to, from, bytes) => void libc.memcpy(to, from, bytes),
  });
  const taken = () => sizes.values().reduce((sum, bytes) => sum + bytes, 0);
  return { engine: compiledEngine({ threads: 1, memory, records: true }), taken };
}

const host = compiledEngine({ threads: 1 });

describe("a twin", () => {
  test("is shared by arrays over parts of one buffer, and copied on request", () => {
    const { engine, taken } = device();
    const all = Float32Array.of(1, 2, 3, 4);
    const [whole, end] = [engine.array(f32(4), all), engine.array(f32(2), all.subarray(2))];
    expect(taken()).toBe(16);
    end.write(Float32Array.of(30, 40));
    expect([...whole.read()]).toEqual([1, 2, 30, 40]);
    all[0] = 10;
    expect([...whole.read()]).toEqual([1, 2, 30, 40]);
    all[0] = 10;
    engine.toDevice(all);
    expect([...whole.read()]).toEqual([10, 2, 30, 40]);
    engine.release(all.subarray(3));
    expect(taken()).toBe(0);
    engine.release(all);
  });
});

test("the check of a GPU at start-up passes, with recorded runs", async () => {
  expect(await deviceCheck(device().engine)).toBe("no operator falls back to the CPU");
});

const sequences = [
  { tokens: Int32Array.of(1, 5, 2, 7), written: Int32Array.of(1, 2, 3) },
  { tokens: Int32Array.of(3, 3, 9), written: Int32Array.of(2) },
];
const LIMITS = { tokensMax: 64, lengthMultiple: 8, widthMultiple: 8 };
const ADAMW = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 };

test("training steps equal the host's bit for bit, and toHost copies their results to the host", async () => {
  const train = async (engine: Engine) => {
    const parameters = layParameters(tinyModel, tinyParameters().flat.slice());
    const network = await Network.create(engine, tinyModel, parameters);
    const losses: number[] = [];
    for (let step = 0; step < 3; step++) {
      const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.1));
      const { loss } = await network.accumulate(imitation, sequences, { weights }, LIMITS);
      losses.push(loss!);
      if (step === 1) expect(await network.dropGradient()).toBeGreaterThan(0);
      else expect((await network.step(ADAMW)).applied).toBe(true);
    }
    const before = parameters.flat.slice();
    network.toHost({ moments: true });
    const { moment, variance } = network.optimizerState;
    return { losses, before, trained: [parameters.flat, moment, variance].map((values) => [...values]) };
  };
  const [expected, got] = [await train(host), await train(device().engine)];
  expect(got.losses).toEqual(expected.losses);
  expect(got.trained).toEqual(expected.trained);
  // The device has memory of its own.
  expect([...got.before]).toEqual([...tinyParameters().flat]);
  expect(got.trained[0]).not.toEqual([...got.before]);
});

test("decoding equals the host's bit for bit, also with new parameters, which take no new memory", async () => {
  const { engine, taken } = device();
  const [first, second] = [tinyParameters(tinyModel, 1).flat, tinyParameters(tinyModel, 2).flat];
  const decode = async (engine: Engine, between: () => void) => {
    const decoder = new Decoder(engine, tinyModel, first, { slots: 2, capacity: 16 });
    const said: number[] = [];
    for (const parameters of [first, second]) {
      if (parameters === second) decoder.setParameters(second);
      decoder.clear(0);
      decoder.clear(1);
      said.push(...(await decoder.append([0, 1], [[1, 2, 3], [4]])));
      for (const token of [5, 6]) said.push(...(await stepSlots(decoder, [token, token + 1], tinyModel.vocabulary)));
      between();
    }
    return said;
  };
  const sizes: number[] = [];
  const expected = await decode(host, () => {});
  expect(await decode(engine, () => void sizes.push(taken()))).toEqual(expected);
  expect(sizes[0]).toBeGreaterThan(first.byteLength);
  expect(sizes[1]).toBe(sizes[0]!);
});

test("a learner's other thread publishes, saves and restores the values on the device", async () => {
  const zeros = () => new Float32Array(parameterCount(model));
  const run = async (engine: Engine) => {
    const memory = { parameters: start.slice(), moment: zeros(), variance: zeros() };
    const trainer = trainerMethods(async () => engine);
    await trainer.start({
      engine: { name: "compiled", threads: 1 },
      optimizer: "adamw",
      model,
      policy: { ...memory, step: 0 },
      frozen: null,
      critic: null,
    });
    const seen: number[][] = [];
    const see = () => void seen.push(Object.values(memory).flatMap((values) => [...values]));
    const kl = { estimator: "k3", coefficient: 0.1 } as const;
    const update = () => trainer.update(play(start, rewards, 3), { ...settings, policy: { ...settings.policy, kl } });
    for (let round = 0; round < 2; round++) {
      trainer.keepReference(memory.parameters);
      await update();
      trainer.prepareCheckpoint();
      see();
    }
    // Back to where it began, as from a checkpoint.
    memory.parameters.set(start);
    memory.moment.fill(0);
    memory.variance.fill(0);
    trainer.resumeFrom({ policy: 0, critic: null });
    await update();
    trainer.resetOptimizer();
    await trainer.imitate(sequences.slice(0, 1), LIMITS, ADAMW);
    trainer.prepareCheckpoint();
    see();
    return seen;
  };
  expect(await run(device().engine)).toEqual(await run(host));
});
