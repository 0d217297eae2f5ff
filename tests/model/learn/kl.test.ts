import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-backend-cpu";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import fc from "fast-check";
import { controlKl, KL_ESTIMATORS, klInReward, klNumbers } from "../../../model/learn/kl.ts";
import { klEstimate } from "../../../model/learn/loss.ts";
import { differences } from "./loss-reference.ts";

await tf.setBackend("cpu");

const estimate = (d: number[], estimator: (typeof KL_ESTIMATORS)[number]) =>
  tf.tidy(() => [...klEstimate(tf.tensor1d(d), tf.zeros([d.length]), estimator).dataSync()]);

const SLOW = {
  k1: (d: number) => d,
  abs: (d: number) => Math.abs(d),
  k2: (d: number) => d ** 2 / 2,
  k3: (d: number) => Math.exp(-d) + d - 1,
};

describe("klEstimate", () => {
  test("matches a difference of ln 2 worked by hand", () => {
    const d = [Math.LN2];
    expect(estimate(d, "k1")[0]).toBeCloseTo(Math.LN2, 5);
    expect(estimate(d, "abs")[0]).toBeCloseTo(Math.LN2, 5);
    expect(estimate(d, "k2")[0]).toBeCloseTo(0.240227, 5);
    expect(estimate(d, "k3")[0]).toBeCloseTo(0.5 + Math.LN2 - 1, 5);
    expect(estimate(d, "k3+")[0]).toBeCloseTo(0.193147, 5);
  });

  test.each(Object.entries(SLOW))("the gradient of %s equals float64 finite differences", (estimator, slow) => {
    const off = fc.integer({ min: -200, max: 200 }).map((n) => n / 100 + 0.005);
    fc.assert(
      fc.property(fc.array(off, { minLength: 1, maxLength: 5 }), (d) => {
        const expected = differences((x) => x.reduce((sum, one) => sum + slow(one), 0), d);
        const got = tf.tidy(() => {
          const f = (x: tf.Tensor) => tf.sum(klEstimate(x, tf.zeros([d.length]), estimator as keyof typeof SLOW));
          return tf.grad(f)(tf.tensor1d(d)).dataSync();
        });
        expected.forEach((g, i) => {
          expect(Math.abs(got[i]! - g)).toBeLessThan(1e-4 * (1 + Math.abs(g)));
        });
      }),
    );
  });

  test("k3+ has the value of k3 and the gradient of k2", () => {
    const d = [-1.5, 0.3, 2];
    expect(estimate(d, "k3+").map((x) => x.toFixed(4))).toEqual(estimate(d, "k3").map((x) => x.toFixed(4)));
    const gradient = tf.tidy(() =>
      tf.grad((x: tf.Tensor) => tf.sum(klEstimate(x, tf.zeros([3]), "k3+")))(tf.tensor1d(d)),
    );
    expect([...gradient.dataSync()].map((g) => g.toFixed(4))).toEqual(d.map((g) => g.toFixed(4)));
  });

  test("every gradient but that of k1 is 0 where the policy equals its reference", () => {
    const gradients = KL_ESTIMATORS.map((estimator) =>
      tf.tidy(
        () =>
          tf
            .grad((x: tf.Tensor) => tf.sum(klEstimate(x, tf.zeros([1]), estimator)))(tf.zeros([1]))
            .dataSync()[0]!,
      ),
    );
    expect(gradients.map((one) => one + 0)).toEqual([1, 0, 0, 0, 0]);
  });

  test("k3 is never negative and at most 10 for any two policies", () => {
    const values = estimate([-1000, -30, -1, 0, 1, 30, 1000], "k3");
    expect(values.every((x) => x >= 0 && x <= 10)).toBe(true);
    expect(values[0]).toBe(10);
  });

  test("k3 is 10, without a gradient, where its formula is larger, however far apart the policies are", () => {
    // exp(2.5) - 2.5 - 1 = 8.68; exp(3) - 3 - 1 = 16.1; exp(-9) + 9 - 1 = 8.0; exp(-12) + 12 - 1 = 11.
    const d = [-1000, -3, -2.5, 9, 12, 1000];
    const near = (values: ArrayLike<number>) => Array.from(values, (one) => Number(one.toPrecision(4)) + 0);
    expect(near(estimate(d, "k3"))).toEqual([10, 10, 8.682, 8, 10, 10]);
    expect(near(klNumbers(d, new Float32Array(d.length), "k3"))).toEqual([10, 10, 8.682, 8, 10, 10]);
    const gradient = tf.tidy(() =>
      tf
        .grad((x: tf.Tensor) => tf.sum(klEstimate(x, tf.zeros([d.length]), "k3")))(tf.tensor1d(d))
        .dataSync(),
    );
    // 1 - exp(-d).
    expect(near(gradient)).toEqual([0, 0, -11.18, 0.9999, 0, 0]);
  });

  test("k1 and k3 average to the true divergence of two coins", () => {
    // P(head) 0.7 against 0.4: KL = 0.7 ln(7/4) + 0.3 ln(3/6).
    const d = [Math.log(0.7 / 0.4), Math.log(0.3 / 0.6)];
    const truth = 0.7 * d[0]! + 0.3 * d[1]!;
    for (const estimator of ["k1", "k3", "k3+"] as const) {
      const [head, tail] = estimate(d, estimator);
      expect(0.7 * head! + 0.3 * tail!).toBeCloseTo(truth, 5);
    }
  });
});

test("klInReward penalizes written tokens only", () => {
  expect([...klInReward(Float32Array.of(0.5, 9, -1), Uint8Array.of(1, 0, 1), 0.5)]).toEqual([-0.25, 0, 0.5]);
});

describe("controlKl", () => {
  test("moves by at most 20 % of samples / horizon, worked by hand", () => {
    // 5 times the target: error clipped to 0.2; 0.001 * (1 + 0.2 * 128 / 10000).
    expect(controlKl(0.001, 0.1, 0.5, 128)).toBeCloseTo(0.00100256, 12);
    expect(controlKl(0.001, 0.1, 0.09, 1000)).toBeCloseTo(0.001 * (1 - 0.1 * 0.1), 12);
  });

  test("does not change at its target, and always moves towards it", () => {
    expect(controlKl(0.001, 0.1, 0.1, 128)).toBeCloseTo(0.001, 12);
    fc.assert(
      fc.property(fc.double({ min: 0, max: 10, noNaN: true }), (kl) => {
        const coefficient = controlKl(0.001, 0.1, kl, 128);
        expect(Math.sign(coefficient - 0.001) * Math.sign(kl - 0.1)).toBeGreaterThanOrEqual(0);
        expect(coefficient).toBeGreaterThan(0);
      }),
    );
  });
});

describe("klNumbers", () => {
  test.each(KL_ESTIMATORS)("%s is the same estimate without tensors", (estimator) => {
    const far = fc.double({ min: -40, max: 40, noNaN: true });
    fc.assert(
      fc.property(fc.array(far, { minLength: 1, maxLength: 6 }), (d) => {
        const numbers = klNumbers(d, new Float32Array(d.length), estimator);
        for (const [i, expected] of estimate(d, estimator).entries()) {
          expect(Math.abs(numbers[i]! - expected)).toBeLessThan(1e-4 * (1 + Math.abs(expected)));
        }
      }),
    );
  });
});
