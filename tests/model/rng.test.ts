import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { coin, hash64, philox, sequence, shuffle, type Words } from "../../model/rng.ts";

describe("philox", () => {
  // Known answers of Random123 (tests/kat_vectors, philox4x32 with 10 rounds); the last is of digits of pi.
  const ones = 0xffffffff;
  test.each<[Words, [number, number], Words]>([
    [
      [0, 0, 0, 0],
      [0, 0],
      [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    ],
    [
      [ones, ones, ones, ones],
      [ones, ones],
      [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    ],
    [
      [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      [0xa4093822, 0x299f31d0],
      [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    ],
  ])("turns %p under key %p into the published block", (counter, key, block) => {
    expect(philox(counter, key)).toEqual(block);
  });

  test("agrees with the same arithmetic in BigInt", () => {
    const word = fc.nat({ max: ones });
    fc.assert(
      fc.property(fc.tuple(word, word, word, word), fc.tuple(word, word), (counter, key) => {
        expect(philox(counter, key)).toEqual(philoxInBigInt(counter, key));
      }),
    );
  });
});

/** Slow reference: one round as the paper writes it. */
function philoxInBigInt(counter: Words, key: readonly [number, number]): Words {
  const mask = 0xffffffffn;
  let [a, b, c, d] = counter.map(BigInt) as [bigint, bigint, bigint, bigint];
  for (let round = 0n; round < 10n; round++) {
    const first = 0xd2511f53n * a;
    const second = 0xcd9e8d57n * c;
    a = (second >> 32n) ^ b ^ ((BigInt(key[0]) + round * 0x9e3779b9n) & mask);
    c = (first >> 32n) ^ d ^ ((BigInt(key[1]) + round * 0xbb67ae85n) & mask);
    b = second & mask;
    d = first & mask;
  }
  return [Number(a), Number(b), Number(c), Number(d)];
}

describe("hash64", () => {
  test("is the beginning of a published sha256", () => {
    // FIPS 180-2, "abc": ba7816bf 8f01cfea …
    expect(hash64("abc")).toEqual([0xba7816bf, 0x8f01cfea]);
  });
});

describe("coin", () => {
  const key = { seed: 10000, episode: hash64("update-3/group-1/member-7") };

  test("does not depend on earlier draws or the process", () => {
    const forwards = Array.from({ length: 100 }, (_, i) => coin(key, i));
    const backwards = Array.from({ length: 100 }, (_, i) => coin({ ...key }, 99 - i));
    expect(backwards.toReversed()).toEqual(forwards);
    expect(new Set(forwards).size).toBe(100);
  });

  test("is the published block, as 53 bits", () => {
    // Words 6627e8d5 and e169c58d: 27 upper bits of the first, then 26 of the second.
    const expected = Number(((0x6627e8d5n >> 5n) << 26n) | (0xe169c58dn >> 6n)) / 2 ** 53;
    expect(coin({ seed: 0, episode: [0, 0] }, 0)).toBe(expected);
  });

  test("differs between seeds, episodes, indices past 2^32 and from sequences", () => {
    const coins = [
      coin(key, 5),
      coin({ ...key, seed: 10001 }, 5),
      coin({ ...key, episode: hash64("update-3/group-1/member-8") }, 5),
      coin(key, 5 + 2 ** 32),
      sequence(10000, "update-3/group-1/member-7")(),
      coin(key, 0),
    ];
    expect(new Set(coins).size).toBe(coins.length);
  });

  test("is uniform: mean, variance and 100 bins of 100,000 coins are as likely as they should be", () => {
    const count = 100_000;
    const bins = new Float64Array(100);
    let sum = 0;
    let squares = 0;
    for (let i = 0; i < count; i++) {
      const value = coin(key, i);
      expect(value >= 0 && value < 1).toBe(true);
      sum += value;
      squares += value * value;
      bins[Math.floor(value * 100)]! += 1;
    }
    // Standard errors: sqrt(1/12/n) = 0.00091 and sqrt(4/45/n) = 0.00094; four of them.
    expect(Math.abs(sum / count - 1 / 2)).toBeLessThan(0.0037);
    expect(Math.abs(squares / count - 1 / 3)).toBeLessThan(0.0038);
    const chiSquare = bins.reduce((total, bin) => total + (bin - count / 100) ** 2 / (count / 100), 0);
    // 99 degrees of freedom: the 0.1 % and 99.9 % quantiles.
    expect(chiSquare).toBeGreaterThan(60.6);
    expect(chiSquare).toBeLessThan(148.3);
  });
});

describe("sequence", () => {
  const drawn = (seed: number, name: string) => {
    const next = sequence(seed, name);
    return Array.from({ length: 5 }, () => next());
  };

  test("repeats for equal seed and name, and only then", () => {
    expect(drawn(7, "shuffle")).toEqual(drawn(7, "shuffle"));
    expect(drawn(7, "shuffle")).not.toEqual(drawn(8, "shuffle"));
    expect(drawn(7, "shuffle")).not.toEqual(drawn(7, "weights"));
    expect(new Set(drawn(7, "shuffle")).size).toBe(5);
  });
});

describe("shuffle", () => {
  test("keeps every item", () => {
    fc.assert(
      fc.property(fc.array(fc.integer()), fc.nat(), (items, seed) => {
        const shuffled = shuffle([...items], sequence(seed, "test"));
        expect(shuffled.toSorted((a, b) => a - b)).toEqual(items.toSorted((a, b) => a - b));
      }),
    );
  });

  test("follows its draws, worked by hand", () => {
    // From the end: 0.5 of 4 picks index 2; 0 of 3 picks 0; 0.99 of 2 picks 1.
    const draws = [0.5, 0, 0.99];
    expect(shuffle(["a", "b", "c", "d"], () => draws.shift()!)).toEqual(["d", "b", "a", "c"]);
  });

  test("makes each of the 24 orders of four items equally often", () => {
    const uniform = sequence(1, "orders");
    const seen = new Map<string, number>();
    for (let i = 0; i < 24_000; i++) {
      const order = shuffle([..."abcd"], uniform).join("");
      seen.set(order, (seen.get(order) ?? 0) + 1);
    }
    expect(seen.size).toBe(24);
    // Chi-square, 23 degrees of freedom: the 99.9 % quantile is 49.7.
    expect([...seen.values()].reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0)).toBeLessThan(49.7);
  });
});
