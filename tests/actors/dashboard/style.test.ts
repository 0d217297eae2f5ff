/** The page's colors, against WCAG's numbers. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

describe("the style", () => {
  const css = readFileSync(join(import.meta.dir, "../../../actors/dashboard/style.css"), "utf8");
  const [light, dark] = [...css.matchAll(/:root \{([^}]*)\}/g)].map(
    ([, block]) =>
      new Map([...block!.matchAll(/--(\w[\w-]*): (#[0-9a-f]{6});/g)].map(([, name, hex]) => [name!, hex!])),
  );

  /** Relative luminance and contrast as in WCAG 2.2. */
  function luminance(hex: string): number {
    const linear = [1, 3, 5].map((at) => {
      const channel = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
      return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0]! + 0.7152 * linear[1]! + 0.0722 * linear[2]!;
  }
  function contrast(a: string, b: string): number {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high! + 0.05) / (low! + 0.05);
  }

  test("computes contrast as WCAG does", () => {
    expect(contrast("#000000", "#ffffff")).toBe(21);
    expect(contrast("#767676", "#ffffff").toFixed(2)).toBe("4.54");
  });

  test.each([
    ["light", light!],
    ["dark", dark!],
  ])("has a contrast of at least 4.5 for every text in %s", (_, colors) => {
    const texts = {
      ink: ["paper", "card", "sunk"],
      muted: ["paper", "card", "sunk"],
      accent: ["paper", "card"],
      box: ["card"],
      bad: ["card", "bad-tint"],
      good: ["good-tint"],
      card: ["accent", "good"],
    };
    for (const [text, surfaces] of Object.entries(texts)) {
      for (const surface of surfaces) {
        const ratio = contrast(colors.get(text)!, colors.get(surface)!);
        expect({ text, surface, ratio, enough: ratio >= 4.5 }).toMatchObject({ enough: true });
      }
    }
  });
});
