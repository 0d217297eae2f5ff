/** A check at start-up that an engine computes correctly: some devices accept work and return zeros. */
import * as tf from "@tensorflow/tfjs-core";
import { type Engine, f32 } from "./engine.ts";

/** @throws {Error} with the engine, the expected and the found product. */
export async function selfCheck(engine: Engine): Promise<void> {
  const product = await engine.compile("self-check", ({ a, b }) => ({ c: tf.matMul(a!, b!) }), {
    a: f32(2, 3),
    b: f32(3, 2),
  });
  const a = engine.array(f32(2, 3), Float32Array.of(1, 2, 3, 4, 5, 6));
  const b = engine.array(f32(3, 2), Float32Array.of(7, 8, 9, 10, 11, 12));
  const c = engine.array(f32(2, 2));
  await product.run({ a, b }, { c });
  await product.dispose();
  // 1·7 + 2·9 + 3·11 = 58, and so on.
  const expected = "58,64,139,154";
  const found = c.read().join();
  if (found !== expected) {
    throw new Error(
      `engine ${engine.name} on ${engine.device} computes wrong results: a known product is ${found}, not ${expected}; choose another engine or --device`,
    );
  }
}
