/** Saves one checkpoint and is killed on the way. Arguments: folder, update, call, share of the call that is done. */
import { saveCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { checkpointOf, faultyDisk } from "./faulty-disk.ts";

const [folder, update, call, done] = process.argv.slice(2);
const { disk } = faultyDisk({ call: Number(call), done: Number(done) }, () => {
  process.kill(process.pid, "SIGKILL");
  throw new Error("still alive");
});
await saveCheckpoint(folder!, checkpointOf(Number(update)), disk);
