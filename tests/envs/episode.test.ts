import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { DiscreteGame, Effect, EpisodeRules, LanguageGame, OutsideGame } from "../../envs/env.ts";
import { openEpisode } from "../../envs/episode.ts";
import { envTag } from "../../envs/registry.ts";
import { openLocal } from "../../envs/tag.ts";

const rules: EpisodeRules = {
  turnsMax: 3,
  actionsMax: 5,
  actionsPerTurnMax: 3,
  formatPenalty: -0.1,
  think: false,
};
const say = (...actions: string[]) => `<answer>${actions.join(" || ")}</answer>`;

/** Counts up; 7 wins, 13 loses. */
class Counter implements DiscreteGame {
  readonly kind = "discrete";
  readonly actions = ["One", "Three", "Seven"];
  total = 0;

  render(): string {
    return String(this.total);
  }

  act(action: number): Effect {
    const added = [1, 3, 7][action]!;
    this.total += added;
    const [success, lost] = [this.total === 7, this.total === 13];
    return { reward: added, done: success || lost, effective: true, valid: action > 0, success, extra: { added } };
  }
}

/** Echoes every action and never ends. */
class Echo implements LanguageGame {
  readonly kind = "language";
  heard = "nothing";
  render(): string {
    return this.heard;
  }
  act(action: string): Effect {
    this.heard = action;
    return { reward: 1, done: false, effective: true, valid: true, success: false, message: `heard ${action}` };
  }
}

describe("openEpisode", () => {
  test.each([[["Up", "up"]], [["Up", "Down "]], [["Up||Down"]], [[""]]])(
    "refuses the actions %j: a reply could not choose one",
    (actions) => {
      const game = Object.assign(new Counter(), { actions });
      expect(() => openEpisode(game, rules)).toThrow("no reply can choose the action");
    },
  );

  test("plays known actions in order, whatever their case, and sums their rewards", () => {
    const env = openEpisode(new Counter(), rules);
    expect(env.opening).toBe("0");
    expect(env.step(say("one", "THREE"))).toEqual({
      observation: "4",
      reward: 4,
      penalty: 0,
      actions: ["One", "Three"],
      actionsLeft: 3,
      wellFormed: true,
      effective: true,
      valid: true,
      success: false,
      ending: null,
      extra: { added: 3 },
    });
  });

  test("drops an unknown action, plays the others, and takes the penalty once", () => {
    const turn = openEpisode(new Counter(), rules).step(say("jump", "One", "fly"));
    expect(turn).toMatchObject({ actions: ["One"], reward: 1, penalty: -0.1, wellFormed: false, valid: false });
  });

  test.each(["", "One", say(), say("jump"), say("", "")])("is a turn with a penalty and no action: %p", (reply) => {
    const turn = openEpisode(new Counter(), rules).step(reply);
    expect(turn).toMatchObject({ actions: [], reward: 0, penalty: -0.1, wellFormed: false, effective: false });
    expect(turn).toMatchObject({ observation: "0", actionsLeft: 5, ending: null, extra: {} });
  });

  test("a turn without an action has no effect, is not valid and no success", () => {
    const env = openEpisode(new Counter(), rules);
    for (const reply of ["no form", say("Nine")])
      expect(env.step(reply)).toMatchObject({ reward: 0, actions: [], effective: false, valid: false, success: false });
  });

  test("takes no penalty for surplus actions, in a turn or in the budget", () => {
    const env = openEpisode(new Counter(), rules);
    expect(env.step(say("One", "One", "One", "jump"))).toMatchObject({ penalty: 0, actionsLeft: 2 });
    expect(env.step(say("One", "One", "One"))).toMatchObject({ penalty: 0, actionsLeft: 0, ending: "actions" });
  });

  test("ends at once when the game does, and says how", () => {
    expect(openEpisode(new Counter(), rules).step(say("Seven", "One"))).toMatchObject({
      actions: ["Seven"],
      success: true,
      ending: "success",
    });
    const env = openEpisode(new Counter(), rules);
    env.step(say("Three", "Three"));
    expect(env.step(say("Seven", "One"))).toMatchObject({ actions: ["Seven"], success: false, ending: "over" });
  });

  test("ends for turns, and a success on the last action or turn stays one", () => {
    const env = openEpisode(new Counter(), rules);
    expect([1, 2, 3].map(() => env.step("?").ending)).toEqual([null, null, "turns"]);
    expect(() => env.step("?")).toThrow("this episode is over (turns); open a new one");
    const last = openEpisode(new Counter(), { ...rules, turnsMax: 1, actionsMax: 1 });
    expect(last.step(say("Seven")).ending).toBe("success");
  });

  test("hands any text to a language game, and shows its message", () => {
    const env = openEpisode(new Echo(), { ...rules, think: true });
    const turn = env.step("<think>hm</think><answer>finish[42]</answer>");
    expect(turn).toMatchObject({ observation: "heard finish[42]", actions: ["finish[42]"], penalty: 0 });
    expect(env.step("nonsense").observation).toBe("finish[42]");
  });

  test("keeps its budgets for any replies: every episode ends, and rewards add up", () => {
    const tag = envTag("SimpleSokoban");
    const word = fc.constantFrom("Up", "Down", "Left", "Right", "jump");
    const reply = fc.array(word, { maxLength: 7 }).map((actions) => say(...actions));
    fc.assert(
      fc.property(fc.nat(), fc.array(reply, { minLength: 6, maxLength: 6 }), (layout, replies) => {
        const env = openEpisode(openLocal(tag, { layout, dynamics: 0 }), rules);
        let executed = 0;
        for (const [i, text] of replies.entries()) {
          const turn = env.step(text);
          executed += turn.actions.length;
          expect(turn.actionsLeft).toBe(5 - executed);
          expect(turn.actions.length).toBeLessThanOrEqual(3);
          expect(turn.penalty === 0).toBe(turn.wellFormed);
          if (turn.ending !== null) return;
          expect(i).toBeLessThan(2);
        }
        throw new Error("the episode never ended");
      }),
    );
  });
});

/** The counter, elsewhere: every answer takes a while. */
class FarCounter implements OutsideGame {
  readonly kind = "outside";
  readonly #counter = new Counter();
  readonly actions: readonly string[] | null;
  readonly heard: string[] = [];
  started = false;
  closed = 0;

  constructor(listed = true) {
    this.actions = listed ? this.#counter.actions : null;
  }
  async start(): Promise<void> {
    await Promise.resolve();
    this.started = true;
  }
  render(): string {
    return this.started ? this.#counter.render() : "not started";
  }
  async act(action: string): Promise<Effect> {
    await Promise.resolve();
    this.heard.push(action);
    if (action === "Break") throw new Error("the line is dead");
    return this.#counter.act(Math.max(0, this.#counter.actions.indexOf(action)));
  }
  async close(): Promise<void> {
    this.closed++;
  }
}

describe("an episode of a game that lives elsewhere", () => {
  test("starts it, and gives the turns of the same game at home", async () => {
    for (const replies of [
      [say("one", "THREE"), say("fly", "Three")],
      [say("Seven", "One")],
      ["nonsense", say("One")],
    ]) {
      const near = openEpisode(new Counter(), rules);
      const far = await openEpisode(new FarCounter(), rules);
      expect(far.opening).toBe(near.opening);
      for (const reply of replies) expect(await far.step(reply)).toEqual(near.step(reply));
      expect(far.actionsLeft).toBe(near.actionsLeft);
    }
  });

  test("waits for one action before the next, and stops when the game is over", async () => {
    const game = new FarCounter(false);
    const env = await openEpisode(game, rules);
    expect(await env.step(say("Three", "Three", "One"))).toMatchObject({ observation: "7", ending: "success" });
    expect(game.heard).toEqual(["Three", "Three", "One"]);
    expect(() => env.step(say("One"))).toThrow("this episode is over (success); open a new one");
  });

  test("plays one turn at a time, and none after a failure", async () => {
    const env = await openEpisode(new FarCounter(false), rules);
    const first = env.step(say("One", "Break", "One"));
    const message = "the previous turn of this episode has not ended, or it failed; wait for it, or open a new episode";
    expect(() => env.step(say("One"))).toThrow(message);
    expect(await Promise.resolve(first).catch(String)).toBe("Error: the line is dead");
    expect(() => env.step(say("One"))).toThrow(message);
  });

  test("that has started and cannot show itself is closed", async () => {
    const game = new FarCounter();
    game.render = () => {
      throw new Error("no screen");
    };
    await expect(openEpisode(game, rules) as Promise<unknown>).rejects.toThrow("no screen");
    expect(game.closed).toBe(1);
  });

  test("gives back what it holds when it is closed", async () => {
    const game = new FarCounter();
    const env = await openEpisode(game, rules);
    await env.close();
    expect(game.closed).toBe(1);
  });
});
