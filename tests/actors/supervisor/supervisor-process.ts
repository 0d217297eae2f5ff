/** A supervisor of three children in a process of its own. The process prints the children's pids once all children are ready. */
import { realSupervisor, testActor } from "./stage-supervisor.ts";

const { supervisor, events } = await realSupervisor();
const names = ["a", "b", "c"];
for (const name of names) supervisor.start(testActor(name, { behaviour: "good" }));
await Promise.all(names.map((name) => events.next("ready", name)));
console.log(JSON.stringify(supervisor.children.map(({ pid }) => pid)));
