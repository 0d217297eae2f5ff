/** A learner whose tickets are not played: it warns while no sampler is there, and ends its process if samplers are there. */
import { expect, test } from "bun:test";
import { RunError } from "../../../actors/errors.ts";
import { drainLog, finishRun, showPlay, watchProgress } from "../../../actors/learner/start.ts";
import { FakeClock } from "../fake-clock.ts";
import { configOf } from "../training/stage.ts";

const progressDeadlineMs = 10_000;

function watched(samplerCount: number) {
  const clock = new FakeClock();
  const warnings: string[] = [];
  const failures: string[] = [];
  const dispatcher = {
    get stalledMs() {
      return clock.now();
    },
    samplerCount,
    state: "3 tickets wait; sampler-0 plays 2",
  };
  watchProgress(
    configOf({ supervisor: { progressDeadlineMs } }),
    { clock, fail: (error) => failures.push((error as Error).message) },
    dispatcher,
    { event: (level, kind, text) => warnings.push(`${level} ${kind}: ${text}`) },
  );
  return { clock, warnings, failures };
}

test("connected samplers that do not play end the learner after progressDeadlineMs, and its error names them", () => {
  const { clock, warnings, failures } = watched(2);
  clock.advance(progressDeadlineMs - 1);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toEqual(["nothing was played for 10000 ms (limit 10000 ms): 3 tickets wait; sampler-0 plays 2"]);
  expect(warnings).toEqual([]);
});

test("samplers are not stuck because all were suspended", () => {
  const { clock, failures } = watched(2);
  clock.jump(progressDeadlineMs);
  clock.advance(progressDeadlineMs - 1);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toEqual([expect.stringMatching(/^nothing was played for 10000 ms/)]);
});

test("without a sampler it warns and waits, as one may come back", () => {
  const { clock, warnings, failures } = watched(0);
  clock.advance(progressDeadlineMs);
  expect(failures).toEqual([]);
  expect(warnings).toEqual([expect.stringMatching(/^warning stalled: nothing was played for 10000 ms/)]);
});

test("episodes that take long are counted every 20 s, from the second time that they are seen", () => {
  const clock = new FakeClock();
  const lines: string[] = [];
  let playing: { batch: number; tickets: number; ended: number } | null = { batch: 1, tickets: 256, ended: 3 };
  const dispatcher = {
    get playing() {
      return playing;
    },
  };
  showPlay(clock, dispatcher, { line: (kind, text) => lines.push(`${kind}: ${text}`) });
  clock.advance(20_000);
  expect(lines).toEqual([]);
  playing = { batch: 1, tickets: 256, ended: 120 };
  clock.advance(20_000);
  playing = { batch: 2, tickets: 64, ended: 1 };
  clock.advance(20_000);
  playing = null;
  clock.advance(20_000);
  expect(lines).toEqual(["play: 120 of 256 episodes played"]);
});

test("a log that lacks episodes ends the run with an error that counts them", async () => {
  const ended = async (rows: number, lost: number, messages = 0) => {
    const warnings: string[] = [];
    const left = { rows, messages };
    const reporter = { lost, waiting: left, drain: async () => left };
    const error = await drainLog(reporter, { warning: (_, text) => warnings.push(text) }, 4000).catch(
      (error: unknown) => error,
    );
    return { error, warnings };
  };
  expect(await ended(0, 0)).toEqual({ error: undefined, warnings: [] });
  expect(await ended(0, 0, 7)).toEqual({
    error: undefined,
    warnings: ["7 metrics and events could not be stored"],
  });
  const { error } = await ended(128, 2);
  expect(error).toBeInstanceOf(RunError);
  expect((error as Error).message).toStartWith(
    "130 episodes are lost: the metrics sink did not store them in 4 s (2 can never be stored; the log says why).",
  );
  const never = "2 episodes are lost: the metrics sink can never store them; the log says why";
  expect((await ended(0, 2)).error).toEqual(new RunError(never));
});

test("the record calls a run finished once its episodes are stored and its report is saved", async () => {
  const course: string[] = [];
  const ended = (lost: number, save: () => void) => {
    course.length = 0;
    const left = { rows: 0, messages: 0 };
    const reporter = {
      lost,
      waiting: left,
      async drain(ms: number) {
        course.push(`drained in ${ms}`);
        return left;
      },
      event: (...event: readonly string[]) => void course.push(event.join(" ")),
    };
    const success = { random: 0, best: 1, expert: null, taught: null, before: 0.1, after: 0.5 };
    return finishRun({ updates: 3, success }, reporter, { warning: () => {} }, 14_000, save);
  };
  await ended(0, () => void course.push("saved"));
  expect(course).toEqual(["drained in 14000", "saved", "info finished 3 updates, success 50.0 %"]);
  await expect(ended(1, () => void course.push("saved"))).rejects.toThrow("1 episodes are lost");
  expect(course).toEqual(["drained in 14000"]);
  const full = () => {
    throw new Error("no space left on device");
  };
  await expect(ended(0, full)).rejects.toThrow("no space left");
  expect(course).toEqual(["drained in 14000"]);
});

test("a sink that is slow gets more time as long as it stores something", async () => {
  let rows = 300;
  const drain = async () => {
    rows -= 100;
    return { rows, messages: 0 };
  };
  await drainLog({ lost: 0, waiting: { rows, messages: 0 }, drain }, { warning: () => {} }, 4000);
  expect(rows).toBe(0);
});
