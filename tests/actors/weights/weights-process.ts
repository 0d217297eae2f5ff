/** A learner that publishes one version, prints the announcement, and then waits until standard input ends. Arguments: folder, run. */
import { WeightsPublisher } from "../../../actors/weights/publisher.ts";

const [folder, run] = process.argv.slice(2);
const publisher = new WeightsPublisher({ folder: folder!, run: run! });
const published = await publisher.publish(
  1,
  Float32Array.from({ length: 1000 }, (_, i) => i / 7),
);
console.log(JSON.stringify(published));
await new Response(Bun.stdin.stream()).bytes();
