/** Every engine that can run here. tensorflow needs a libtensorflow; tensorflow.test.ts reports if it is missing. */
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { eagerEngine } from "../../../model/engine/eager.ts";
import type { Engine } from "../../../model/engine/engine.ts";
import { machineInstructions } from "../../../model/engine/native/machine.ts";
import { findLibtensorflow, placesOf } from "../../../model/engine/tensorflow/find.ts";
import { tensorflowEngine } from "../../../model/engine/tensorflow.ts";

export const libtensorflow = findLibtensorflow(placesOf(process.env));

export const engines: [string, Engine][] = [
  ["compiled", compiledEngine({ threads: 1 })],
  ["compiled, without machine code", compiledEngine({ threads: 1, instructions: null })],
  ["eager", eagerEngine()],
];
const most = machineInstructions();
if (most === "AMX") engines.push(["compiled, AVX-512", compiledEngine({ threads: 1, instructions: "AVX-512" })]);
if (most !== null && most !== "AVX2")
  engines.push(["compiled, AVX2", compiledEngine({ threads: 1, instructions: "AVX2" })]);
if (libtensorflow !== null) {
  engines.push(["tensorflow", tensorflowEngine(libtensorflow, { threads: 2, device: "cpu" })]);
}
