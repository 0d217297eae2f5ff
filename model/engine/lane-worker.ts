/**
 * The thread of a lane: it waits for calls, makes them and signals the end. It owns nothing: a call is the addresses that
 * onnxruntime's `Run` takes, and the requesting thread keeps their memory alive until the end.
 */
import { DONE, type LaneMemory, ROUND, RUN_ARGUMENT_COUNT, type RunArguments, runner } from "./lanes.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<LaneMemory>) => {
  const signals = new Int32Array(data.signals);
  const words = new BigUint64Array(data.calls);
  const runHere = runner(data.run);
  const callAt = (index: number) =>
    words.subarray(1 + index * RUN_ARGUMENT_COUNT, 1 + (index + 1) * RUN_ARGUMENT_COUNT) as unknown as RunArguments;
  for (let round = 0; ; ) {
    Atomics.wait(signals, ROUND, round);
    round = Atomics.load(signals, ROUND);
    const calls = Array.from({ length: Number(words[0]) }, (_, index) => callAt(index));
    words[0] = BigInt(runHere(calls) ?? 0);
    Atomics.store(signals, DONE, round);
    Atomics.notify(signals, DONE);
  }
};
