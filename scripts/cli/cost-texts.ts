/** What runs cost, in words. */
import type { Costs } from "../../actors/record/costs.ts";

export const COST_NAMES: readonly (readonly [key: keyof Costs["total"], name: string])[] = [
  ["tokens", "tokens"],
  ["actions", "env actions"],
  ["cpuSeconds", "CPU seconds"],
  ["joules", "joules"],
];

/** "1,234"; below 10 with at most one decimal; "–" if unknown. */
export const amountText = (amount: number | null): string =>
  amount === null ? "–" : amount.toLocaleString("en", { maximumFractionDigits: amount < 10 ? 1 : 0 });
