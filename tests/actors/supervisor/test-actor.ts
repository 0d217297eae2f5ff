/** A child that works or fails as its settings say. */
import { z } from "zod";
import { boot } from "../../../actors/process/boot.ts";
import { startThread } from "../../../actors/process/worker-rpc.ts";
import type { AddingMethods } from "../process/adding-thread.ts";

await boot({
  role: "sampler",
  settingsSchema: z.strictObject({
    behaviour: z.enum(["good", "crash", "finish", "busy", "deaf", "hung"]),
    note: z.string().default(""),
  }),
  async start({ behaviour, note }, { transport, listen, log, finish, fail }) {
    if (behaviour === "crash") throw new TypeError("this actor has a bug");
    const heard: string[] = [];
    const listener = await transport.listen(listen, {
      told() {},
      asked: () => ({ type: "failed", code: "env", detail: "a test actor" }),
    });
    log.info("note", note);
    if (behaviour === "finish") finish("all done");
    if (behaviour === "busy") {
      // After the first heartbeats: a loop that never gives way.
      setTimeout(() => {
        for (;;);
      }, 200);
    }
    const thread =
      behaviour === "hung"
        ? startThread<AddingMethods>(new URL("../process/adding-thread.ts", import.meta.url), fail)
        : { workingMs: () => 0, methods: null };
    // A hung actor answers heartbeats, but its computation never ends.
    void thread.methods?.never();
    return {
      workingMs: () => thread.workingMs(),
      url: listener.address,
      doing: () => (heard.length === 0 ? behaviour : `heard ${heard.join(", ")}`),
      stop: (reason) => {
        log.info("stopping", reason);
        return behaviour === "deaf" ? new Promise(() => {}) : listener.close();
      },
      told: (message) => void heard.push(message.type),
    };
  },
});
