/** Which boards a batch plays. Source: RAGEN EnvStateManager: a group is one layout seed, groups take them in turn. */

/** RAGEN's first layout seeds of training and of validation. */
export const TRAIN_SEED = 10_000;
export const VALIDATION_SEED = 123;

/** Layout seed of each episode of a batch, group after group. @param first of the first group; the next batch continues. */
export function groupSeeds(first: number, groups: number, groupSize: number): number[] {
  return Array.from({ length: groups * groupSize }, (_, i) => first + Math.floor(i / groupSize));
}
