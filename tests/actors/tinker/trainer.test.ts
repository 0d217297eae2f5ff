/** The life of a model at the server: which model the trainer takes, its heartbeats, and how the trainer gives it up. */
import { afterAll, beforeEach, expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { startTinkerTrainer } from "../../../actors/tinker/trainer.ts";
import { FakeClock } from "../fake-clock.ts";
import { BigramServer } from "./bigram-server.ts";

const server = new BigramServer(4);
afterAll(() => server.stop());
beforeEach(() => {
  server.names = ["bigrams"];
  server.asked.length = 0;
});

type Saved = Parameters<typeof startTinkerTrainer>[1];

function start(path = "models/small", saved: Saved = null) {
  const clock = new FakeClock();
  const warnings: string[] = [];
  const values = { engine: { name: "tinker", url: `${server.url}/` }, model: { path }, warmStart: { enabled: false } };
  const config = composeRunConfig([{ source: "test", values }]);
  const trainer = startTinkerTrainer(config, saved, { clock, fetch, warn: (text) => warnings.push(text) });
  return { clock, warnings, trainer };
}

const beats = () => server.asked.filter((path) => path === "session_heartbeat").length;
/** Until the server has got what was sent. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((next) => setImmediate(next));
}

test("a heartbeat goes at once and every 10 s, until the model is given up", async () => {
  const { clock, trainer } = start();
  const { stop, engine } = await trainer;
  expect(engine).toBe(`tinker, ${server.url}, bigrams`);
  await until(() => beats() === 1);
  clock.advance(9999);
  clock.advance(1);
  await until(() => beats() === 2);
  clock.advance(10_000);
  await until(() => beats() === 3);
  expect(server.models.size).toBe(1);
  await stop();
  expect(server.models.size).toBe(0);
  clock.advance(60_000);
  expect(server.asked.at(-1)).toBe("unload_model");
});

test("a trainer whose saved state the server has lost gives its model up", async () => {
  const { clock, trainer } = start("models/small", { steps: 3, served: "tinker://lost" });
  await expect(trainer).rejects.toThrow("load_weights");
  expect(server.models.size).toBe(0);
  // No heartbeat is to come.
  expect(clock.waitingMs).toEqual([]);
});

test("a heartbeat without a session is a warning: the next request shows that the model is gone", async () => {
  const { clock, trainer, warnings } = start();
  const { stop } = await trainer;
  await until(() => beats() === 1);
  server.interfere = (path) =>
    path === "session_heartbeat" ? Response.json({ detail: "Session not found" }, { status: 404 }) : null;
  clock.advance(10_000);
  await until(() => warnings.length > 1);
  expect(warnings.slice(1)).toEqual([`the server at ${server.url}, session_heartbeat: answers 404: Session not found`]);
  server.interfere = () => null;
  await stop();
});

test.each([
  ["its only model", ["bigrams"], "models/small", "bigrams"],
  ["the model of this name", ["a/b", "models/small"], "models/small", "models/small"],
  ["the model of the Hub", ["Qwen/Qwen3-4B", "a/b"], "/c/hub/models--Qwen--Qwen3-4B/snapshots/12ab", "Qwen/Qwen3-4B"],
])("of a server's models it takes %s", async (_, names, path, taken) => {
  server.names = names;
  const { warnings, trainer } = start(path);
  const { engine, stop } = await trainer;
  expect(engine).toEndWith(`, ${taken}`);
  expect(warnings).toEqual(
    taken === "bigrams"
      ? [`the server at ${server.url} has only the model bigrams, and model.path is ${path}: the run trains bigrams`]
      : [],
  );
  await stop();
});

test("a model that the server has not is refused, with those that it has", async () => {
  server.names = ["a/b", "c/d"];
  await expect(start().trainer).rejects.toThrow(
    `the server at ${server.url} has the models a/b, c/d, and model.path is models/small; set model.path to one of them`,
  );
});
