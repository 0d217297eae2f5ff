import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type EnvAnswer, EnvServer } from "../../../actors/env-server/env-server.ts";
import type { EnvAsk, Messages } from "../../../actors/protocol.ts";
import { sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import type { Env, Seeds, Turn } from "../../../envs/env.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";

/** For each reply, the fields that an env with a bug returns in place of those of a turn. */
const BAD_TURNS: Readonly<Record<string, Partial<Turn>>> = {
  nan: { reward: Number.NaN },
  "reward 1e39": { reward: 1e39 },
  "penalty -1e39": { penalty: -1e39 },
  "extra 1e39": { extra: { score: 1, steps: 1e39 } },
  "extra Infinity": { extra: { score: Number.POSITIVE_INFINITY } },
  "long observation": { observation: "é".repeat(2 ** 19 + 1), ending: "over" },
  "large extra": { extra: { ["x".repeat(2 ** 19)]: 1 }, ending: "over" },
  "long extra": { extra: Object.fromEntries(Array.from({ length: 2 ** 17 }, (_, i) => [`part ${i}`, 1])) },
};

/** Counts its turns and ends after three. "boom" throws; "long error" throws 100,000 characters. */
class Counter implements Env {
  readonly opening: string;
  actionsLeft = 3;
  #sum: number;

  constructor({ layout, dynamics }: Seeds) {
    this.opening = `board ${layout}`;
    this.#sum = dynamics;
  }

  close(): void {}

  step(reply: string): Turn {
    if (reply === "boom") throw new TypeError("the env has a bug");
    if (reply === "long error") throw new Error("x".repeat(100_000));
    this.actionsLeft--;
    this.#sum++;
    return {
      observation: `after ${reply}: ${this.#sum}`,
      reward: this.#sum,
      penalty: 0,
      actions: [reply],
      actionsLeft: this.actionsLeft,
      wellFormed: true,
      effective: true,
      valid: true,
      success: false,
      ending: this.actionsLeft === 0 ? "actions" : null,
      extra: {},
      ...BAD_TURNS[reply],
    };
  }
}

function makeServer({ episodesMax = 10, idleMs = 1000 } = {}) {
  const clock = new FakeClock();
  const warnings: string[] = [];
  const find = (tag: string) => {
    if (tag === "counter") return (seeds: Seeds) => new Counter(seeds);
    if (tag === "broken") {
      return (): Env => {
        throw new Error("no level fits");
      };
    }
    throw new Error(`unknown env tag "${tag}"`);
  };
  return {
    clock,
    warnings,
    server: new EnvServer({ find, episodesMax, idleMs, answerMsMax: 100, clock, warn: (text) => warnings.push(text) }),
  };
}

const open = (episode: string, env = "counter", layoutSeed = 1, dynamicsSeed = 10): Messages["env.open"] => ({
  type: "env.open",
  episode,
  env,
  layoutSeed,
  dynamicsSeed,
});
const step = (episode: string, turn: number, reply = "left"): Messages["env.step"] => ({
  type: "env.step",
  episode,
  turn,
  reply,
});
/** The answer of an env that answers at once. */
function now(server: EnvServer, owner: string, ask: EnvAsk): EnvAnswer {
  const answer = server.answer(owner, ask);
  if (answer instanceof Promise) throw new Error(`${ask.type} has to be waited for`);
  return answer;
}
const code = (answer: EnvAnswer) => (answer.type === "failed" ? answer.code : answer.type);
const detail = (answer: EnvAnswer) => (answer.type === "failed" ? answer.detail : answer.type);

describe("an env server", () => {
  test("plays one episode to its end", () => {
    const { server } = makeServer();
    expect(now(server, "s", open("e"))).toEqual({
      type: "env.opened",
      episode: "e",
      observation: "board 1",
      actionsLeft: 3,
    });
    const turns = [0, 1, 2].map((turn) => now(server, "s", step("e", turn)));
    expect(turns.map((turn) => turn.type === "env.stepped" && [turn.turn, turn.reward, turn.ending])).toEqual([
      [0, 11, null],
      [1, 12, null],
      [2, 13, "actions"],
    ]);
    expect(server.openCount).toBe(0);
  });

  test("plays a step once, and gives the same answer to a repeated ask", () => {
    const { server } = makeServer();
    now(server, "s", open("e"));
    for (const turn of [0, 1, 2]) {
      const first = now(server, "s", step("e", turn));
      expect(now(server, "s", step("e", turn))).toEqual(first);
      expect(now(server, "s", step("e", turn))).toEqual(first);
    }
  });

  test("gives the answers of an unbroken episode, however often each step is repeated", () => {
    const plain = makeServer().server;
    now(plain, "s", open("e"));
    const expected = [0, 1, 2].map((turn) => now(plain, "s", step("e", turn)));
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 3, maxLength: 3 }), (times) => {
        const { server } = makeServer();
        now(server, "s", open("e"));
        times.forEach((count, turn) => {
          for (let i = 0; i < count; i++) expect(now(server, "s", step("e", turn))).toEqual(expected[turn]!);
        });
      }),
    );
  });

  test("refuses any turn but the next, and continues with that", () => {
    const { server } = makeServer();
    now(server, "s", open("e"));
    now(server, "s", step("e", 0));
    now(server, "s", step("e", 1));
    expect(now(server, "s", step("e", 3))).toEqual({
      type: "failed",
      code: "protocol",
      detail: "episode e is at turn 2; cannot play turn 3",
    });
    expect(code(now(server, "s", step("e", 0)))).toBe("protocol");
    expect(detail(now(server, "s", step("e", 1, "right")))).toBe(
      "episode e turn 1 was already played with another reply",
    );
    expect(code(now(server, "s", step("e", 2)))).toBe("env.stepped");
    expect(detail(now(server, "s", step("e", 3)))).toBe("episode e ended with turn 2; cannot play turn 3");
  });

  test.each([
    ["boom", "counter#1/10 turn 1: TypeError: the env has a bug"],
    ["nan", "counter#1/10 turn 1: Error: reward: Invalid input: expected number, received NaN"],
    ["reward 1e39", "counter#1/10 turn 1: Error: the env's reward is 1e+39; float32 holds numbers between"],
    ["penalty -1e39", "counter#1/10 turn 1: Error: the env's penalty is -1e+39; float32 holds numbers between"],
    ["extra 1e39", "counter#1/10 turn 1: Error: the env's extra.steps is 1e+39; float32 holds numbers between"],
    ["extra Infinity", "counter#1/10 turn 1: Error: extra.score: Invalid input: expected number, received Infinity"],
    ["long observation", "counter#1/10 turn 1: Error: the env's observation has 1048578 bytes; at most 1048576 are"],
    ["long extra", "counter#1/10 turn 1: Error: the env's extra has 1986043 bytes; at most 1048576 are"],
    ["long error", "counter#1/10 turn 1: Error: xxxx"],
  ])(
    "turns a reply that breaks the env (%s) into a failure, never into a reward, and closes the episode",
    (reply, text) => {
      const { server } = makeServer();
      now(server, "s", open("e"));
      now(server, "s", step("e", 0));
      const failed = now(server, "s", step("e", 1, reply));
      expect(code(failed)).toBe("env");
      expect(detail(failed)).toStartWith(text);
      expect(detail(failed).length).toBeLessThan(5000);
      expect(server.openCount).toBe(0);
      expect(now(server, "s", step("e", 1, reply))).toEqual(failed);
    },
  );

  test("refuses a sum of rewards that float32 cannot hold, and texts that are too long only in sum", () => {
    const env = (turn: Partial<Turn>) => (): Env =>
      Object.assign(new Counter({ layout: 1, dynamics: 10 }), {
        step: (): Turn => ({ ...new Counter({ layout: 1, dynamics: 10 }).step("left"), ...turn }),
      });
    const rest = { episodesMax: 1, idleMs: 1000, answerMsMax: 100, clock: new FakeClock(), warn() {} };
    const played = (turn: Partial<Turn>) => {
      const server = new EnvServer({ find: () => env(turn), ...rest });
      now(server, "s", open("e"));
      for (let i = 0; ; i++) {
        const answer = now(server, "s", step("e", i));
        if (answer.type === "failed") return [answer.code, answer.detail];
      }
    };
    expect(played({ reward: 2e38 })).toEqual([
      "env",
      "counter#1/10 turn 1: Error: the env's sum of rewards in this episode is 4e+38; " +
        "float32 holds numbers between -3.4e+38 and 3.4e+38. Return one of these.",
    ]);
    expect(played({ observation: "x".repeat(2 ** 20 - 2) })).toEqual([
      "env",
      "counter#1/10 turn 15: Error: the env's observations and extra of this episode have 16777221 bytes; " +
        "at most 16777216 are allowed. Shorten them.",
    ]);
  });

  test("says which env or board could not be opened", () => {
    const { server } = makeServer();
    expect(now(server, "s", open("e", "chess"))).toEqual({
      type: "failed",
      code: "protocol",
      detail: 'cannot open chess#1/10: Error: unknown env tag "chess"',
    });
    expect(now(server, "s", open("e", "broken"))).toEqual({
      type: "failed",
      code: "env",
      detail: "broken#1/10 open: Error: no level fits",
    });
    expect(server.openCount).toBe(0);
  });

  test("answers that an episode it does not hold must be opened again", () => {
    const { server } = makeServer();
    expect(now(server, "s", step("ghost", 0))).toEqual({
      type: "failed",
      code: "closed",
      detail: "episode ghost is not open here: it was never opened, or closed as idle. Open it again.",
    });
  });

  test("when it is full, refuses with what to do, and opens the next when one ends", () => {
    const { server } = makeServer({ episodesMax: 2 });
    now(server, "s", open("a"));
    now(server, "s", open("b"));
    expect(now(server, "s", open("c"))).toEqual({
      type: "failed",
      code: "capacity",
      detail:
        "cannot open counter#1/10: 2 of 2 episodes are open. Wait for one to finish, or raise envServer.episodesMax.",
    });
    for (const turn of [0, 1, 2]) now(server, "s", step("a", turn));
    expect(code(now(server, "s", open("c")))).toBe("env.opened");
    server.forget("s", "b");
    expect(code(now(server, "s", open("d")))).toBe("env.opened");
    expect(server.openCount).toBe(2);
  });

  test("keeps the newest last answers, as far as their texts are not large in sum", () => {
    const { server } = makeServer({ episodesMax: 1000 });
    const long = "x".repeat(2 ** 19);
    const play = (episode: string) => {
      now(server, "s", open(episode));
      for (const turn of [0, 1, 2]) now(server, "s", step(episode, turn, long));
    };
    for (let i = 0; i < 100; i++) play(`e${i}`);
    expect(code(now(server, "s", step("e99", 2, long)))).toBe("env.stepped");
    expect(detail(now(server, "s", step("e0", 2, long)))).toContain("episode e0 is not open here");
    const isKept = (_: unknown, i: number) => code(now(server, "s", step(`e${i}`, 2, long))) === "env.stepped";
    // Each has the text as reply, as action and in its observation.
    expect(Array.from({ length: 100 }, isKept).filter(Boolean)).toHaveLength(42);
    for (let i = 58; i < 100; i++) server.forget("s", `e${i}`);
    for (let i = 0; i < 42; i++) play(`f${i}`);
    expect(code(now(server, "s", step("f0", 2, long)))).toBe("env.stepped");
  });

  test("counts the names in extra as texts of a last answer", () => {
    const { server } = makeServer({ episodesMax: 1000 });
    for (let i = 0; i < 200; i++) {
      now(server, "s", open(`e${i}`));
      expect(code(now(server, "s", step(`e${i}`, 0, "large extra")))).toBe("env.stepped");
    }
    const isKept = (_: unknown, i: number) => code(now(server, "s", step(`e${i}`, 0, "large extra"))) === "env.stepped";
    expect(Array.from({ length: 200 }, isKept).filter(Boolean)).toHaveLength(127);
  });

  test("starts an episode from the beginning when it is opened again", () => {
    const { server } = makeServer({ episodesMax: 1 });
    now(server, "s", open("e"));
    const first = now(server, "s", step("e", 0));
    now(server, "s", step("e", 1));
    expect(code(now(server, "s", open("e")))).toBe("env.opened");
    expect(now(server, "s", step("e", 0))).toEqual(first);
  });

  test("keeps the episodes of two samplers apart, though they have the same id", () => {
    const { server } = makeServer();
    now(server, "old", open("e"));
    now(server, "old", step("e", 0));
    now(server, "new", open("e", "counter", 1, 500));
    expect(now(server, "new", step("e", 0))).toMatchObject({ reward: 501 });
    expect(now(server, "old", step("e", 1))).toMatchObject({ reward: 12 });
  });

  test("closes an episode without a step for idleMs, and no other", () => {
    const { server, clock } = makeServer({ idleMs: 1000 });
    now(server, "s", open("idle"));
    now(server, "s", open("busy"));
    clock.advance(900);
    now(server, "s", step("busy", 0));
    clock.advance(400);
    expect(server.openCount).toBe(1);
    expect(code(now(server, "s", step("idle", 0)))).toBe("closed");
    expect(code(now(server, "s", step("busy", 1)))).toBe("env.stepped");
  });

  test("answers every ask once over a connection, and a lost one does not lose the episode", async () => {
    const { server, clock } = makeServer();
    const transport = new MemoryTransport(new MemoryNetwork(), {
      clock,
      token: "",
      frameBytesMax: 10_000,
      queuedBytesMax: 10_000,
    });
    await transport.listen("memory:env", welcoming("run", server));
    const join = async () => {
      const peer = await transport.connect("memory:env", {
        told() {},
        asked: () => Promise.reject(new Error("unasked")),
      });
      await sayHello(peer, { actor: "sampler-1", role: "sampler", url: null }, 1000);
      return peer;
    };
    const before = await join();
    await before.ask(open("e"), 1000);
    const first = await before.ask(step("e", 0), 1000);
    before.close("cut");
    const after = await join();
    expect(await after.ask(step("e", 0), 1000)).toEqual(first);
    expect(await after.ask(step("e", 1), 1000)).toMatchObject({ type: "env.stepped", turn: 1 });
    expect(await after.ask({ type: "episodes", rows: [] }, 1000)).toMatchObject({
      code: "protocol",
      detail: "no message episodes goes to an env server from a sampler",
    });
    after.tell({ type: "save" });
    expect(await after.ask(step("e", 2), 1000)).toMatchObject({
      code: "closed",
      detail: expect.stringContaining("no message save goes to an env server from a sampler"),
    });
  });
});
