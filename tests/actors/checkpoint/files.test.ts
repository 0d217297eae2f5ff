/** The files of a checkpoint as bytes, without a disk. */
import { expect, test } from "bun:test";
import { decodeCheckpoint, encodeCheckpoint } from "../../../actors/checkpoint/files.ts";
import { checkpointOf } from "./faulty-disk.ts";

const joined = (files: ReturnType<typeof encodeCheckpoint>) =>
  new Map([...files].map(([name, parts]) => [name, new Uint8Array(Buffer.concat([...parts]))]));

test("no file of moments is larger than an array may be", () => {
  const { length } = checkpointOf(3).policy.parameters;
  const files = joined(encodeCheckpoint(checkpointOf(3), 4 * length + 4096));
  expect([...files.keys()]).toEqual([
    "policy.safetensors",
    "critic.safetensors",
    "optimizer.policy.moment.safetensors",
    "optimizer.policy.variance.safetensors",
    "optimizer.critic.moment.safetensors",
    "optimizer.critic.variance.safetensors",
    "state.json",
  ]);
  expect(decodeCheckpoint(files)).toEqual(checkpointOf(3));
  files.delete("optimizer.critic.variance.safetensors");
  expect(() => decodeCheckpoint(files)).toThrow("optimizer.critic.variance.safetensors is missing");
});
