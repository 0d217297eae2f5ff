import { describe, expect, test } from "bun:test";
import { meanOf, shareOf, studentT } from "../../model/interval.ts";

describe("meanOf", () => {
  test("gives Student's interval, worked by hand", () => {
    // 1, 2, 3: std 1, and t of 2 degrees is 4.302653.
    const { n, mean, std, low, high } = meanOf([1, 2, 3]);
    expect([n, mean, std]).toEqual([3, 2, 1]);
    expect(low).toBeCloseTo(2 - 4.302653 / Math.sqrt(3), 6);
    expect(high).toBeCloseTo(2 + 4.302653 / Math.sqrt(3), 6);
  });

  test("gives no interval for one value, and refuses an empty list", () => {
    expect(meanOf([7])).toEqual({ n: 1, mean: 7, std: null, low: null, high: null });
    expect(() => meanOf([])).toThrow("a mean needs at least 1 value, got 0");
  });
});

test("studentT equals the published table", () => {
  const table = [
    [1, 12.7062],
    [2, 4.3027],
    [3, 3.1824],
    [4, 2.7764],
    [9, 2.2622],
    [30, 2.0423],
  ] as const;
  for (const [degrees, t] of table) expect(studentT(degrees)).toBeCloseTo(t, 4);
});

describe("shareOf", () => {
  test("gives the interval of Clopper and Pearson", () => {
    // Where all or no tries hit, the other end is .025 to the power of 1 / tries.
    const end = 0.025 ** (1 / 10);
    expect(shareOf(10, 10).low).toBeCloseTo(end, 9);
    expect(shareOf(0, 10).high).toBeCloseTo(1 - end, 9);
    // From a table: 5 of 10.
    expect(shareOf(5, 10).low).toBeCloseTo(0.1871, 4);
    expect(shareOf(5, 10).high).toBeCloseTo(0.8129, 4);
  });

  test("ends at exactly 0 and 1", () => {
    expect([shareOf(0, 3).low, shareOf(3, 3).high]).toEqual([0, 1]);
  });

  test("refuses numbers that give no share", () => {
    expect(() => shareOf(4, 3)).toThrow("cannot compute a share of 4 hits in 3 tries");
    expect(() => shareOf(0, 0)).toThrow("cannot compute a share of 0 hits in 0 tries");
  });
});
