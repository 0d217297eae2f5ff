import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { NumpyLegacyRandom, nextSeed, PythonRandom } from "../../envs/rng/mt19937.ts";
import { Pcg64 } from "../../envs/rng/pcg64.ts";

const times = <T>(count: number, draw: () => T): T[] => Array.from({ length: count }, draw);

describe("PythonRandom", () => {
  test("gives random.Random(0).random() of CPython", () => {
    expect(new PythonRandom(0).random()).toBe(0.8444218515250481);
  });

  test("gives the same numbers after its 624 words are used up", () => {
    const random = new PythonRandom(0);
    // random.seed(0); [random.random() for _ in range(700)][-5:-3]
    expect(times(700, () => random.random()).slice(-5, -3)).toEqual([0.38834759617804915, 0.234029260524927]);
  });

  test("shuffles without losing or making an item", () => {
    fc.assert(
      fc.property(fc.uint32Array({ maxLength: 40 }), fc.nat({ max: 0xffffffff }), (items, seed) => {
        const shuffled = [...items];
        new PythonRandom(seed).shuffle(shuffled);
        expect(shuffled.sort((a, b) => a - b)).toEqual([...items].sort((a, b) => a - b));
      }),
    );
  });

  test("samples distinct items, few of many and many of few", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), fc.nat({ max: 20 }), fc.nat(), (size, wanted, seed) => {
        const count = Math.min(size, wanted);
        const items = Array.from({ length: size }, (_, i) => i);
        expect(new Set(new PythonRandom(seed).sample(items, count)).size).toBe(count);
      }),
    );
  });

  test.each([-1, 1.5, 2 ** 32])("refuses seed %p", (seed) => {
    expect(() => new PythonRandom(seed)).toThrow(`seed must be an integer in [0, 4294967295], got ${seed}`);
  });

  test("refuses to choose from an empty list", () => {
    expect(() => new PythonRandom(1).choice([])).toThrow(
      new RangeError("cannot draw one of 0 numbers; allowed are 1 to 2^32 - 1"),
    );
  });
});

test("NumpyLegacyRandom gives RandomState(0).randint(0, 100, 5)", () => {
  const random = new NumpyLegacyRandom(0);
  expect(times(5, () => random.randint(100))).toEqual([44, 47, 64, 67, 67]);
});

describe("Pcg64", () => {
  test("gives default_rng(42).random() and default_rng(0).random(3)", () => {
    expect(new Pcg64(42).random()).toBe(0.7739560485559633);
    const random = new Pcg64(0);
    expect(times(3, () => random.random())).toEqual([0.6369616873214543, 0.2697867137638703, 0.04097352393619469]);
  });

  test("gives default_rng(0).integers(0, 10, 5)", () => {
    const random = new Pcg64(0);
    expect(times(5, () => random.integers(10))).toEqual([8, 6, 5, 2, 3]);
  });

  test("agrees with 128-bit arithmetic in BigInt for any seed", () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 0xffffffff }), { minLength: 1, maxLength: 6 }), (entropy) => {
        const random = new Pcg64(...(entropy as [number]));
        const slow = new SlowPcg64(entropy);
        expect(times(20, () => random.random())).toEqual(times(20, () => slow.random()));
      }),
      { numRuns: 50 },
    );
  });

  test("keeps a buffered half for the next 32-bit draw, past a 64-bit one", () => {
    const [plain, mixed] = [new Pcg64(5), new Pcg64(5)];
    const first = [plain.next32(), plain.next32()];
    const before = mixed.next32();
    mixed.random();
    expect([before, mixed.next32()]).toEqual(first);
  });

  test("draws an integer below a power of two from the first bits of a 32-bit draw", () => {
    const [random, plain] = [new Pcg64(3), new Pcg64(3)];
    expect(times(50, () => random.integers(2 ** 31))).toEqual(times(50, () => Math.floor(plain.next32() / 2)));
  });

  test("draws integers in range, and every one of them", () => {
    const random = new Pcg64(1);
    expect(new Set(times(400, () => random.integers(7)))).toEqual(new Set([0, 1, 2, 3, 4, 5, 6]));
  });
});

test("nextSeed gives abs(hash(str(seed))) % 2**32 under PYTHONHASHSEED=0", () => {
  expect([0, 123, 10000, 4294967295].map(nextSeed)).toEqual([1200356398, 3606947409, 888661558, 4104901467]);
});

const MASK64 = (1n << 64n) - 1n;
const MASK128 = (1n << 128n) - 1n;

/** The same generator, obvious and slow. */
class SlowPcg64 {
  state: bigint;
  readonly increment: bigint;

  constructor(entropy: readonly number[]) {
    const words = seedSequence(entropy);
    const high = (words[0]! << 64n) | words[1]!;
    this.increment = ((((words[2]! << 64n) | words[3]!) << 1n) | 1n) & MASK128;
    this.state = 0n;
    this.step();
    this.state = (this.state + high) & MASK128;
    this.step();
  }

  step(): void {
    this.state = (this.state * 0x2360ed051fc65da44385df649fccf645n + this.increment) & MASK128;
  }

  random(): number {
    this.step();
    const folded = (this.state >> 64n) ^ (this.state & MASK64);
    const shift = this.state >> 122n;
    const rotated = ((folded >> shift) | (folded << (64n - shift))) & MASK64;
    return Number(rotated >> 11n) / 2 ** 53;
  }
}

/** numpy's SeedSequence(entropy).generate_state(4, uint64). */
function seedSequence(entropy: readonly number[]): bigint[] {
  const mask = 0xffffffffn;
  let constant = 0x43b0d7e5n;
  const hash = (value: bigint) => {
    let x = value ^ constant;
    constant = (constant * 0x931e8875n) & mask;
    x = (x * constant) & mask;
    return x ^ (x >> 16n);
  };
  const mix = (x: bigint, y: bigint) => {
    const z = (0xca01f9ddn * x - 0x4973f715n * y) & mask;
    return z ^ (z >> 16n);
  };
  const words = entropy.map(BigInt);
  const pool = [0, 1, 2, 3].map((i) => hash(words[i] ?? 0n));
  for (const from of [0, 1, 2, 3]) {
    for (const to of [0, 1, 2, 3]) if (from !== to) pool[to] = mix(pool[to]!, hash(pool[from]!));
  }
  for (const word of words.slice(4)) for (const to of [0, 1, 2, 3]) pool[to] = mix(pool[to]!, hash(word));
  let output = 0x8b51f9ddn;
  const halves = times(8, () => 0n).map((_, i) => {
    let x = pool[i % 4]! ^ output;
    output = (output * 0x58f38dedn) & mask;
    x = (x * output) & mask;
    return x ^ (x >> 16n);
  });
  return [0, 1, 2, 3].map((i) => halves[2 * i]! | (halves[2 * i + 1]! << 32n));
}
