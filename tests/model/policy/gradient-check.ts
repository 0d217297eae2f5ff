/**
 * Compares an operation with a plain float64 function of the same arrays: the operation's value everywhere, and its gradient with the
 * central differences of the function.
 */
import { expect } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { type Engine, f32, i32 } from "../../../model/engine/engine.ts";
import { sizeOf } from "../../../model/engine/graph.ts";
import { sequence } from "../../../model/rng.ts";

export type Arrays = Readonly<Record<string, Float64Array>>;

export interface Checked {
  /** Shapes of the inputs that have a gradient. */
  readonly inputs: Readonly<Record<string, readonly number[]>>;
  /** Integer inputs, which have no gradient. */
  readonly indices?: Readonly<
    Record<string, { readonly shape: readonly number[]; readonly values: readonly number[] }>
  >;
  readonly build: (x: Readonly<Record<string, tf.Tensor>>) => tf.Tensor;
  /** The operation in plain float64, row-major. */
  readonly reference: (x: Arrays) => ArrayLike<number>;
}

/** Relative to the largest value of each array: float32 sums of some dozens of terms. */
const TOLERANCE = 2e-5;
const STEP = 1e-5;
/** Maximum number of coordinates of each input that are moved. */
const COORDINATES = 40;

/** Values in about [-1.5, 1.5], exactly representable in float32, so that both sides get the same values. */
export function randomValues(size: number, name: string): Float64Array {
  const uniform = sequence(1, name);
  return Float64Array.from({ length: size }, () => Math.round((3 * uniform() - 1.5) * 4096) / 4096);
}

export const randomFloats = (size: number, name: string) => Float32Array.from(randomValues(size, name));

type Tensors = Readonly<Record<string, tf.Tensor>>;

/** The value of `of`, and the gradients of its `loss` by the named inputs, by their names with `prefix`. */
export function withGradients(
  x: Tensors,
  names: readonly string[],
  of: (x: Tensors) => tf.Tensor,
  loss: (value: tf.Tensor) => tf.Scalar,
  prefix: string,
): { value: tf.Tensor; gradients: Tensors } {
  let value: tf.Tensor | undefined;
  const lossOf = (...moved: tf.Tensor[]) => {
    value = tf.keep(of({ ...x, ...Object.fromEntries(names.map((name, i) => [name, moved[i]!])) }));
    return loss(value);
  };
  const { grads } = tf.valueAndGrads(lossOf)(names.map((name) => x[name]!));
  const gradients = Object.fromEntries(names.map((name, i) => [`${prefix}${name}`, grads[i]!]));
  return { value: value!, gradients };
}

export async function checkGradient(
  engine: Engine,
  { inputs, indices = {}, build, reference }: Checked,
): Promise<void> {
  const names = Object.keys(inputs);
  const values = Object.fromEntries(names.map((name) => [name, randomValues(sizeOf(inputs[name]!), name)]));
  const expected = Float64Array.from(reference(values));
  const cotangent = randomValues(expected.length, "cotangent");
  const weighed = (x: Arrays) => Array.from(reference(x)).reduce((sum, value, i) => sum + value * cotangent[i]!, 0);

  const given = Object.entries(inputs).map(([name, shape]) => [name, f32(...shape)] as const);
  const whole = Object.entries(indices).map(([name, { shape }]) => [name, i32(...shape)] as const);
  const specs = { ...Object.fromEntries([...given, ...whole]), cotangent: f32(expected.length) };
  const compiled = await engine.compile(
    "checked",
    (x) => {
      if (names.length === 0) return { value: build(x) };
      const loss = (value: tf.Tensor) => tf.sum(tf.mul(tf.reshape(value, [-1]), x["cotangent"]!)) as tf.Scalar;
      const { value, gradients } = withGradients(x, names, build, loss, "d ");
      return { value, ...gradients };
    },
    specs,
  );
  const arrays = {
    ...Object.fromEntries(given.map(([name, spec]) => [name, engine.array(spec, Float32Array.from(values[name]!))])),
    ...Object.fromEntries(
      whole.map(([name, spec]) => [name, engine.array(spec, Int32Array.from(indices[name]!.values))]),
    ),
    cotangent: engine.array(f32(expected.length), Float32Array.from(cotangent)),
  };
  const results = Object.fromEntries(
    Object.entries(compiled.outputs).map(([name, spec]) => [name, engine.array(spec)]),
  );
  await compiled.run(arrays, results);
  await compiled.dispose();

  expectNear("value", results["value"]!.read(), expected);
  for (const name of names) {
    const size = values[name]!.length;
    const uniform = sequence(2, name);
    const moved =
      size <= COORDINATES
        ? [...values[name]!.keys()]
        : Array.from({ length: COORDINATES }, () => Math.floor(uniform() * size));
    const slopes = moved.map((index) => {
      const at = (offset: number) =>
        weighed({ ...values, [name]: values[name]!.with(index, values[name]![index]! + offset) });
      return (at(STEP) - at(-STEP)) / (2 * STEP);
    });
    const found = results[`d ${name}`]!.read();
    expectNear(
      `d ${name}`,
      moved.map((index) => Number(found[index])),
      slopes,
    );
  }
}

function expectNear(what: string, found: ArrayLike<number | bigint>, expected: ArrayLike<number>): void {
  expect({ what, length: found.length }).toEqual({ what, length: expected.length });
  const scale = Math.max(1, ...Array.from(expected, Math.abs));
  const gaps = Array.from(expected, (value, i) => Math.abs(Number(found[i]) - value) / scale);
  const worst = gaps.indexOf(Math.max(...gaps));
  // NaN is near no number.
  const near = gaps.every((gap) => gap < TOLERANCE);
  expect({ what, worst, found: near || Number(found[worst]), near }).toEqual({ what, worst, found: true, near: true });
}
