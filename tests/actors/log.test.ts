import { expect, test } from "bun:test";
import { type Level, makeLog } from "../../actors/log.ts";

function lines(level: Level, secrets: string[] = []) {
  const written: string[] = [];
  const date = () => new Date("2026-01-02T03:04:05.678Z");
  const log = makeLog({ actor: "sampler-1", level, secrets, date, write: (line) => void written.push(line) });
  return { log, written };
}

test("a log writes one JSON object per line", () => {
  const { log, written } = lines("info");
  log.warning("peer.lost", "the learner\nis gone", { attempt: 2 });
  expect(written).toEqual([
    '{"time":"2026-01-02T03:04:05.678Z","level":"warning","actor":"sampler-1","kind":"peer.lost","text":"the learner\\nis gone","attempt":2}\n',
  ]);
});

test("a log leaves out what is below its level", () => {
  const { log, written } = lines("warning");
  log.debug("a", "");
  log.info("b", "");
  log.warning("c", "");
  log.error("d", "");
  expect(written.map((line) => JSON.parse(line).kind)).toEqual(["c", "d"]);
});

test("a log never writes a secret, wherever it stands", () => {
  const secret = 'quote"and\\slash';
  const { log, written } = lines("debug", [secret, ""]);
  log.info("x", `connecting with ${secret} to ws://a/?token=${secret}`, { header: `Bearer ${secret}` });
  expect(written[0]).not.toContain("slash");
  expect(JSON.parse(written[0]!)).toMatchObject({
    text: "connecting with (hidden) to ws://a/?token=(hidden)",
    header: "Bearer (hidden)",
  });
});

test("a log cuts a text that would not fit a pipe's piece, and says how long it was", () => {
  const { log, written } = lines("info");
  log.error("x", "y".repeat(100_000));
  expect(written[0]!.length).toBeLessThan(4096);
  expect(JSON.parse(written[0]!).text).toEndWith("… (100000 characters)");
  log.error("x", "ü".repeat(2000), { stack: "z".repeat(2500), step: 7 });
  expect(Buffer.byteLength(written[1]!)).toBeLessThanOrEqual(4096);
  const { text, stack, step } = JSON.parse(written[1]!);
  expect([text, stack]).toEqual([expect.stringMatching(/^ü+… \(2000 /), expect.stringMatching(/^z+… \(2500 /)]);
  expect(step).toBe(7);
});
