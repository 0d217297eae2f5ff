/** A real disk on which one call fails, and the checkpoint that tests save on it. */
import { writeFileSync } from "node:fs";
import type { Checkpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { type Disk, realDisk } from "../../../actors/checkpoint/disk.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { parameterCount } from "../../../model/policy/parameters.ts";
import { sequence } from "../../../model/rng.ts";

/** Where a disk goes wrong: at which of its calls (counted from 0), and which share of that call is done before the failure (0 to 1). */
export interface Fault {
  readonly call: number;
  readonly done: number;
}

/** @param happen  throws, or ends the process */
export function faultyDisk(fault: Fault, happen: (call: string) => never): { disk: Disk; calls: string[] } {
  const calls: string[] = [];
  const breaking = (name: string) => calls.push(name) - 1 === fault.call;
  const around = <A extends unknown[], R>(name: string, run: (...args: A) => Promise<R>) => {
    return async (...args: A): Promise<R> => {
      if (!breaking(name)) return run(...args);
      if (fault.done > 0.5) await run(...args);
      return happen(name);
    };
  };
  const disk: Disk = {
    list: around("list", realDisk.list),
    makeFolder: around("makeFolder", realDisk.makeFolder),
    read: around("read", realDisk.read),
    syncFolder: around("syncFolder", realDisk.syncFolder),
    rename: around("rename", realDisk.rename),
    remove: around("remove", realDisk.remove),
    async write(file, pieces) {
      if (!breaking("write")) return realDisk.write(file, pieces);
      const bytes = Buffer.concat([...pieces]);
      writeFileSync(file, bytes.subarray(0, Math.floor(bytes.length * fault.done)));
      return happen("write");
    },
  };
  return { disk, calls };
}

export const model = ModelConfig.parse({
  vocabulary: 64,
  width: 8,
  layers: 1,
  heads: 2,
  kvHeads: 1,
  headWidth: 4,
  hidden: 16,
});

/** A learner's state after `update` updates. Every number of the state differs from update to update. */
export function checkpointOf(update: number): Checkpoint {
  const network = (name: string, count: number) => {
    const uniform = sequence(update, name);
    const values = () => Float32Array.from({ length: count }, () => uniform() - 0.5);
    return { parameters: values(), moment: values(), variance: values(), step: 3 * update };
  };
  return {
    update,
    model,
    tokenizer: "ab".repeat(32),
    policy: network("policy", parameterCount(model)),
    critic: network("critic", parameterCount({ ...model, head: "value" })),
    state: { episodes: 128 * update, best: { update: 7, success: 0.875 }, cursor: [1, 2, null], note: "π" },
  };
}
