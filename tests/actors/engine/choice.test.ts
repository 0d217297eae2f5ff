/** Which engine a run takes on which machine. A run never replaces an engine that the config asks for. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../../actors/config/config.ts";
import { learnerEngine, type Machine, samplerEngine } from "../../../actors/engine/choice.ts";
import { RunError } from "../../../actors/errors.ts";
import { findLibtensorflow } from "../../../model/engine/tensorflow/find.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const folder = temporaryFolder();
const library = join(folder, "libtensorflow.so.2");
writeFileSync(library, "");

const machine = (gpu: string | null, named: string | undefined, cuda = false): Machine => ({
  gpu: () => gpu,
  places: { named, own: undefined, home: undefined, pythonRoots: [] },
  lackOf: ({ device }) => (device === "cuda" && !cuda ? LACK : null),
});
const LACK = "onnxruntime's CUDA provider is not installed";
/** No libtensorflow, whatever this machine has: a Python environment without one. */
const nowhere = (gpu: string | null): Machine => ({ ...machine(gpu, library), places: bare });
const bare = { named: undefined, own: join(folder, "none"), home: undefined, pythonRoots: [] };
const config = (engine: object) => RunConfig.parse({ engine });
const H200 = "NVIDIA H200";
const here = machine(H200, library, true);
/** The learner's engine on two threads of the CPU. */
const CPU = { name: "compiled", threads: 2, bfloat16Products: "none" } as const;

describe("the learner's engine", () => {
  test("is compiled on the GPU where onnxruntime's CUDA provider loads, else tensorflow, and says so", () => {
    const compiled = { ...CPU, device: "cuda" } as const;
    const reason = "the learner computes on NVIDIA H200";
    expect(learnerEngine(config({}), 2, machine(H200, library, true))).toEqual({ engine: compiled, reason });
    expect(learnerEngine(config({ device: "cuda" }), 2, machine(H200, library, true))).toEqual({
      engine: compiled,
      reason: null,
    });
    expect(learnerEngine(config({}), 2, machine(H200, library))).toEqual({
      engine: { name: "tensorflow", threads: 2, library, device: "cuda" },
      reason,
    });
  });

  test("is compiled without a GPU, and where --device cpu refuses it", () => {
    const compiled = { engine: CPU, reason: null };
    expect(learnerEngine(config({}), 2, machine(null, library))).toEqual(compiled as never);
    expect(learnerEngine(config({ device: "cpu" }), 2, machine(H200, library))).toEqual(compiled as never);
    expect(learnerEngine(config({}), 2, machine(null, "/nowhere"))).toEqual(compiled as never);
    expect(() => learnerEngine(config({}), 2, machine(H200, "/nowhere"))).toThrow(RunError);
  });

  test("is tensorflow on the device that was asked for", () => {
    const asked = (engine: object) => learnerEngine(config(engine), 2, machine(null, library)).engine;
    expect(asked({ name: "tensorflow", device: "cpu" })).toEqual({
      name: "tensorflow",
      threads: 2,
      library,
      device: "cpu",
    });
    expect(asked({ device: "cuda" })).toEqual({ name: "tensorflow", threads: 2, library, device: "cuda" });
  });

  test("is compiled on the configured device, which is never replaced", () => {
    const asked = (engine: object) => learnerEngine(config(engine), 2, machine(H200, library, true)).engine;
    const webgpu = { ...CPU, device: "webgpu", softwareAdapter: false } as const;
    expect(asked({ device: "webgpu" })).toEqual(webgpu);
    expect(asked({ name: "compiled", device: "webgpu", softwareAdapter: true })).toEqual({
      ...webgpu,
      softwareAdapter: true,
    });
    expect(asked({ name: "compiled", device: "cuda", tf32: true })).toEqual({ ...CPU, device: "cuda", tf32: true });
    expect(asked({ name: "compiled" })).toEqual(CPU);
    for (const name of ["auto", "compiled"])
      for (const bfloat16Products of ["gradients", "all"] as const)
        expect(asked({ name, device: "cpu", bfloat16Products })).toEqual({ ...CPU, bfloat16Products });
  });

  // A machine with a libtensorflow in the system's folders cannot test this.
  describe.skipIf(findLibtensorflow(bare) !== null)("without a libtensorflow", () => {
    test("without the provider a GPU is left alone with a word, and refused if it was asked for", () => {
      expect(learnerEngine(config({}), 2, nowhere(H200))).toEqual({
        engine: CPU,
        reason: `NVIDIA H200 is not used: ${LACK}`,
      });
      expect(() => learnerEngine(config({ device: "cuda" }), 2, nowhere(H200))).toThrow(new RunError(LACK));
      expect(() => learnerEngine(config({ name: "tensorflow" }), 2, nowhere(H200))).toThrow(
        /^engine tensorflow needs libtensorflow, which is not in .*; get one: bun run setup tensorflow$/,
      );
    });
  });
});

test("samplers compute on the CPU: the learner owns the GPU", () => {
  const cpu = { name: "compiled", threads: 1 } as const;
  for (const engine of [
    {},
    { name: "tensorflow" },
    { device: "cuda" },
    { name: "tensorflow", device: "cuda" },
    { name: "compiled", device: "webgpu" },
  ]) {
    expect(samplerEngine(config(engine), here)).toEqual(cpu);
  }
  expect(samplerEngine(config({ name: "eager" }), here)).toEqual({ name: "eager", threads: 1 });
});

test("with engine.name compiled and device cuda, samplers of this machine use the GPU too", () => {
  const asked = config({ name: "compiled", device: "cuda", tf32: true });
  expect(samplerEngine(asked, here)).toEqual({ name: "compiled", threads: 1, device: "cuda", tf32: true });
  expect(samplerEngine(asked, here, true)).toEqual({ name: "compiled", threads: 1 });
});

test("samplers round products where the learner's forward pass does, and not where only its gradients do", () => {
  const asked = (bfloat16Products: string) => config({ device: "cpu", bfloat16Products });
  const own = { name: "compiled", threads: 1 } as const;
  for (const guest of [false, true]) {
    expect(samplerEngine(asked("all"), here, guest)).toEqual({ ...own, bfloat16Products: "all" });
    expect(samplerEngine(asked("gradients"), here, guest)).toEqual(own);
  }
});

test("a device that is not there ends the run: starting again does not mend it", () => {
  const none = { ...here, lackOf: () => "device webgpu: Vulkan lists no GPU; install its driver" };
  const error = new RunError("device webgpu: Vulkan lists no GPU; install its driver");
  expect(() => learnerEngine(config({ device: "webgpu" }), 2, none)).toThrow(error);
  expect(() => samplerEngine(config({ name: "compiled", device: "cuda" }), none)).toThrow(error);
  expect(() => samplerEngine(config({ device: "cpu", bfloat16Products: "all" }), none, true)).toThrow(error);
});
