/** Saves one checkpoint, and is killed during a call of the disk. Arguments: folder, update, index of the call, share of the call that is done. */
import { saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { checkpointOf, faultyDisk } from "./faulty-disk.ts";

const [folder, update, call, done] = process.argv.slice(2);
const { disk } = faultyDisk({ call: Number(call), done: Number(done) }, () => {
  process.kill(process.pid, "SIGKILL");
  throw new Error("still alive");
});
await saveCheckpoint(folder!, checkpointOf(Number(update)), disk);
