import { expect, test } from "bun:test";
import { Stage } from "./stage.ts";

test("the last checkpoint waits for the episodes as long as the supervisor may take to replace the sink", async () => {
  const stage = new Stage();
  const storing = new Map<string, boolean>();
  stage.saving = ({ update }) => void storing.set(`save ${update}`, stage.storing);
  const { outcome } = stage;
  stage.outcome = (ticket) => {
    // From the last validation on, the sink hangs for 12 s.
    if (ticket.episode.startsWith("v6.") && stage.storing) {
      stage.storing = false;
      stage.clock.after(12_000, () => {
        stage.storing = true;
      });
    }
    return outcome(ticket);
  };
  const run = stage.training.run();
  let hasEnded = false;
  void run.then(() => {
    hasEnded = true;
  });
  while (!hasEnded) {
    await new Promise(setImmediate);
    stage.clock.advance(100);
  }
  expect(storing.get("save 6")).toBe(true);
});
