/**
 * The thread of a lane: it waits for a round, makes calls and signals the end. The thread owns no memory: a call consists of addresses
 * for onnxruntime's `Run`, and the requesting thread keeps the memory at these addresses alive until the end.
 */
import { DONE, type LaneMemory, ROUND, roundMaker } from "./lanes.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<LaneMemory>) => {
  const { signals } = data;
  const work = roundMaker(data.run, data.work);
  for (let round = 0; ; ) {
    Atomics.wait(signals, ROUND, round);
    round = Atomics.load(signals, ROUND);
    work();
    Atomics.store(signals, DONE, round);
    Atomics.notify(signals, DONE);
  }
};
