/**
 * Golden cases of masks, rewards, filters, advantages, losses and collapse metrics: inputs from the file, run through
 * `model/`. Knows the file's shapes; holds no answer. A vector it does not know is a check that fails.
 */
import type { Checks } from "./check.ts";
import { collapseChecks } from "./collapse.ts";
import { lossChecks } from "./losses.ts";
import { maskChecks } from "./masks.ts";
import { rewardChecks } from "./rewards.ts";

export const checks: Checks = { H8: maskChecks, H9: rewardChecks, H10: lossChecks, X2: collapseChecks };
