/** An env server with slow envs: the test decides when each of them answers. */
import { describe, expect, test } from "bun:test";
import { type EnvAnswer, EnvServer } from "../../../actors/env-server/env-server.ts";
import type { Messages } from "../../../actors/protocol.ts";
import type { Env, Turn } from "../../../envs/env.ts";
import { FakeClock } from "../fake-clock.ts";

const turn = (over: Partial<Turn> = {}): Turn => ({
  observation: "seen",
  reward: 1,
  penalty: 0,
  actions: ["go"],
  actionsLeft: 3,
  wellFormed: true,
  effective: true,
  valid: true,
  success: false,
  ending: null,
  extra: {},
  ...over,
});

/** Opens, steps and closes when the test says so, and records its calls. */
class Slow implements Env {
  readonly opening = "hello";
  readonly actionsLeft = 3;
  readonly opened = Promise.withResolvers<Env>();
  readonly heard: string[] = [];
  closed = 0;
  next = Promise.withResolvers<Turn>();
  closing: Promise<void> = Promise.resolve();

  async step(reply: string): Promise<Turn> {
    this.heard.push(reply);
    const given = await this.next.promise;
    this.next = Promise.withResolvers<Turn>();
    return given;
  }

  close(): Promise<void> {
    this.closed++;
    return this.closing;
  }
}

function stage({ episodesMax = 10, idleMs = 1000, answerMsMax = 100 } = {}) {
  const clock = new FakeClock();
  const envs: Slow[] = [];
  const warnings: string[] = [];
  const find = () => () => {
    const env = new Slow();
    envs.push(env);
    return env.opened.promise;
  };
  const warn = (text: string) => warnings.push(text);
  const server = new EnvServer({ find, episodesMax, idleMs, answerMsMax, clock, warn });
  const open = (episode: string) => {
    const ask: Messages["env.open"] = { type: "env.open", episode, env: "slow", layoutSeed: 1, dynamicsSeed: 2 };
    return server.answer("s", ask) as Promise<EnvAnswer>;
  };
  const step = (episode: string, turnIndex: number, reply = "go") => {
    return server.answer("s", { type: "env.step", episode, turn: turnIndex, reply });
  };
  return { clock, envs, warnings, server, open, step };
}

/** A stage with episode "e" open. */
async function opened(options = {}) {
  const staged = stage(options);
  const answer = staged.open("e");
  const env = staged.envs[0]!;
  env.opened.resolve(env);
  expect(await answer).toMatchObject({ type: "env.opened", observation: "hello", actionsLeft: 3 });
  return { ...staged, env };
}

describe("an env server", () => {
  test("waits for a turn, and plays it once however often the ask repeats meanwhile and after", async () => {
    const { env, step } = await opened();
    const asked = [step("e", 0), step("e", 0), step("e", 0)];
    env.next.resolve(turn());
    const answers = await Promise.all([...asked, step("e", 0)]);
    for (const answer of answers) expect(answer).toEqual(answers[0]!);
    expect(answers[0]).toMatchObject({ type: "env.stepped", turn: 0, reward: 1 });
    expect(env.heard).toEqual(["go"]);
    expect(await step("e", 0)).toEqual(answers[0]!);
  });

  test("refuses the next turn and another reply while one is played", async () => {
    const { env, step } = await opened();
    const first = step("e", 0);
    expect(await step("e", 1)).toEqual({
      type: "failed",
      code: "protocol",
      detail: "episode e still plays turn 0; cannot play turn 1",
    });
    expect(await step("e", 0, "stay")).toMatchObject({
      detail: "episode e turn 0 was already played with another reply",
    });
    env.next.resolve(turn());
    expect(await first).toMatchObject({ type: "env.stepped" });
    expect(env.heard).toEqual(["go"]);
  });

  test("does not let one episode wait for another's env", async () => {
    const { envs, open, step } = await opened();
    const slow = step("e", 0);
    const other = open("other");
    envs[1]!.opened.resolve(envs[1]!);
    expect(await other).toMatchObject({ type: "env.opened", episode: "other" });
    envs[0]!.next.resolve(turn());
    expect(await slow).toMatchObject({ type: "env.stepped" });
  });

  test("says that an env gave no answer in time, closes it, and gives no reward", async () => {
    const { env, clock, server, step } = await opened();
    const late = step("e", 0);
    clock.advance(100);
    const failed = {
      type: "failed",
      code: "env",
      detail: "slow#1/2 turn 0: no answer in 100 ms (envServer.answerMsMax)",
    } as const;
    expect(await late).toEqual(failed);
    expect([env.closed, server.openCount]).toEqual([1, 0]);
    env.next.resolve(turn());
    expect(await step("e", 0)).toEqual(failed);
  });

  test("turns a rejection or an invalid turn into a failure, and closes the env", async () => {
    for (const [spoil, detail] of [
      [(env: Slow) => env.next.reject(new Error("502 from the server")), "slow#1/2 turn 0: Error: 502 from the server"],
      [(env: Slow) => env.next.resolve(turn({ reward: Number.NaN })), "slow#1/2 turn 0: Error: reward: "],
    ] as const) {
      const { env, step, server } = await opened();
      const answer = step("e", 0);
      spoil(env);
      const given = await answer;
      expect(given).toMatchObject({ type: "failed", code: "env" });
      expect(given.type === "failed" && given.detail).toStartWith(detail);
      expect([env.closed, server.openCount]).toEqual([1, 0]);
    }
  });

  test("closes every episode once: at its end, when the sampler gives it up, when it idles, and when the server stops", async () => {
    const ended = await opened();
    const last = ended.step("e", 0);
    ended.env.next.resolve(turn({ ending: "over" }));
    expect(await last).toMatchObject({ ending: "over" });
    ended.server.forget("s", "e");
    await ended.server.stop();
    expect(ended.env.closed).toBe(1);

    const left = await opened();
    left.server.forget("s", "e");
    left.server.forget("s", "e");
    expect(left.env.closed).toBe(1);

    const idle = await opened();
    idle.clock.advance(1300);
    expect(idle.env.closed).toBe(1);

    const stopped = await opened();
    const closing = Promise.withResolvers<void>();
    stopped.env.closing = closing.promise;
    const stop = stopped.server.stop();
    expect(Bun.peek.status(stop)).toBe("pending");
    closing.resolve();
    await stop;
    expect(stopped.env.closed).toBe(1);
  });

  test("closes an env that opens after its deadline, or after its episode was closed or opened again", async () => {
    const { clock, envs, open, server } = stage();
    const late = open("e");
    clock.advance(100);
    expect(await late).toEqual({
      type: "failed",
      code: "env",
      detail: "slow#1/2 open: no answer in 100 ms (envServer.answerMsMax)",
    });
    const forgotten = open("e");
    server.forget("s", "e");
    const replaced = open("e");
    const kept = open("e");
    for (const env of envs) env.opened.resolve(env);
    expect(await forgotten).toMatchObject({
      code: "closed",
      detail: "slow#1/2 was closed before its env answered",
    });
    expect(await replaced).toMatchObject({ code: "closed" });
    expect(await kept).toMatchObject({ type: "env.opened" });
    expect(envs.map(({ closed }) => closed)).toEqual([1, 1, 1, 0]);
    expect(server.openCount).toBe(1);
  });

  test("counts an episode that is opening, and frees its place if the open fails", async () => {
    const { envs, open } = stage({ episodesMax: 1 });
    const first = open("a");
    expect(await open("b")).toMatchObject({ code: "capacity" });
    envs[0]!.opened.reject(new Error("refused"));
    expect(await first).toMatchObject({ code: "env", detail: "slow#1/2 open: Error: refused" });
    const second = open("b");
    envs[1]!.opened.resolve(envs[1]!);
    expect(await second).toMatchObject({ type: "env.opened" });
  });

  test("answers a turn whose episode is closed meanwhile, and keeps nothing of it", async () => {
    const { env, server, step } = await opened();
    const answer = step("e", 0);
    server.forget("s", "e");
    env.next.resolve(turn());
    expect(await answer).toMatchObject({ type: "failed", code: "closed" });
    expect(await step("e", 0)).toMatchObject({ code: "closed" });
    expect(env.closed).toBe(1);
  });

  test("does not count an episode whose env is busy as idle", async () => {
    const { env, clock, step } = await opened({ idleMs: 40, answerMsMax: 1000 });
    const answer = step("e", 0);
    clock.advance(500);
    env.next.resolve(turn());
    expect(await answer).toMatchObject({ type: "env.stepped" });
    expect(env.closed).toBe(0);
  });

  test("stops only after it has closed an env that was still opening", async () => {
    const { envs, open, server } = stage();
    const answer = open("e");
    const stop = server.stop();
    envs[0]!.opened.resolve(envs[0]!);
    await stop;
    expect(envs[0]!.closed).toBe(1);
    expect(await answer).toMatchObject({ code: "closed" });
    const failing = open("f");
    const stopAgain = server.stop();
    envs[1]!.opened.reject(new Error("refused"));
    await stopAgain;
    expect(await failing).toMatchObject({ code: "env" });
  });

  test("stops although an env does not close", async () => {
    const { env, server, warnings, clock } = await opened({ answerMsMax: 60_000 });
    env.closing = new Promise(() => {});
    const stop = server.stop();
    clock.advance(2000);
    await stop;
    expect(warnings).toEqual(["1 episodes were not closed in 2000 ms"]);
  });

  test("says which episode could not be closed", async () => {
    const { env, server, warnings } = await opened();
    env.closing = Promise.reject(new Error("gone"));
    server.forget("s", "e");
    await server.stop();
    expect(warnings).toEqual(["slow#1/2 could not be closed: Error: gone"]);
  });
});
