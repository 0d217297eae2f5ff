/** Words of the page: the past tense for actors of a recorded run, and one line for repeated warnings. */
import { describe, expect, test } from "bun:test";
import type { StoredEvent } from "../../../actors/dashboard/answers.ts";
import { doingText, rateTexts, summaryOf, timeShares } from "../../../actors/dashboard/client/actor-texts.ts";
import { EventLines } from "../../../actors/dashboard/client/event-lines.ts";
import { actorView } from "../metrics-sink/fake-run.ts";

const load = {
  "time/update": 0.1,
  "time/policy": 0.1,
  "time/busy": 0.1,
  "time/weights": 0.1,
  "time/save": 0.1,
  "time/env": 0.1,
  "time/rollout": 0.1,
  "time/tickets": 0.1,
  "speed/sent_bytes_per_second": 5000,
  "speed/received_bytes_per_second": 7000,
};
const actors = [actorView("learner", { load }), actorView("sampler-0", { load }), actorView("env-server-0", { load })];
const wordsOf = (isRecord: boolean) =>
  [
    summaryOf(actors, isRecord),
    ...actors.flatMap((actor) => [
      doingText(actor, isRecord),
      ...rateTexts(actor, isRecord),
      ...timeShares(actor, isRecord).map(({ text }) => text),
    ]),
  ].join("; ");

describe("actors", () => {
  const PRESENT = /\b(computes|generates|steps|publishes|loads|writes|waits?|sends|receives|are)\b(?!\/)/;

  test("of a live run speak in the present", () => {
    expect(wordsOf(false)).toMatch(PRESENT);
    expect(wordsOf(false)).toContain("the learner waits for episodes 10 %");
  });

  test("of a recorded run speak in the past", () => {
    expect(wordsOf(true)).not.toMatch(PRESENT);
    expect(wordsOf(true)).toContain("the learner waited for episodes 10 %");
    expect(doingText({ ...actors[0]!, doing: "update 8 of 8" }, true)).toBe("last seen: update 8 of 8");
  });
});

test("shares of an actor's time fill a bar at most once, and one that reports none has no bar", () => {
  const shares = (load: Record<string, number>) => timeShares(actorView("learner", { load }), false);
  expect(shares({ "time/update": 0.75, "time/save": 0.5 }).map(({ share }) => share)).toEqual([0.75, 0.5, 0]);
  expect(shares({ "time/update": 0.25 })).toMatchObject([{ share: 0.25 }, { text: "idle", share: 0.75 }]);
  expect(shares({ "queue/playing": 3 })).toEqual([]);
});

describe("repeated warnings", () => {
  const eventOf = (id: number, text: string, level: StoredEvent["level"] = "warning"): StoredEvent => ({
    id,
    atMs: id * 1000,
    actor: "learner",
    level,
    kind: "skipped",
    text,
  });
  const shown = (lines: ReturnType<EventLines["add"]>) => lines.map(({ event, count }) => [event.text, count]);

  test("are one line with a count and the newest numbers", () => {
    const lines = new EventLines(10);
    lines.add([
      eventOf(3, "update 3: nothing differs"),
      eventOf(2, "disk is full"),
      eventOf(1, "update 1: nothing differs"),
    ]);
    expect(shown(lines.add([eventOf(4, "update 12: nothing differs")]))).toEqual([
      ["update 12: nothing differs", 3],
      ["disk is full", 1],
    ]);
  });

  test("that arrive twice count once, and infos are never merged", () => {
    const lines = new EventLines(10);
    const events = [eventOf(2, "same", "info"), eventOf(1, "same", "info")];
    lines.add(events);
    expect(shown(lines.add([eventOf(3, "late"), ...events]))).toEqual([
      ["late", 1],
      ["same", 1],
      ["same", 1],
    ]);
  });

  test("keep at most as many lines as the list shows, the newest", () => {
    const lines = new EventLines(2);
    expect(shown(lines.add([eventOf(3, "c"), eventOf(2, "b"), eventOf(1, "a")]))).toEqual([
      ["c", 1],
      ["b", 1],
    ]);
  });
});
