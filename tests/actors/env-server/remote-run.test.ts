/**
 * A policy trained on the Bandit of this process plays the same Bandit behind HTTP. The policy sees the same texts, so its results must
 * be the same. An error of the server must not count as a failure of the policy, and must not enter training.
 */
import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, test } from "bun:test";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { evaluatePolicy } from "../../../actors/evaluate/evaluate.ts";
import { savedPolicy, startSavedPolicy } from "../../../actors/policy/saved-policy.ts";
import { inThisThread } from "../../../actors/process/worker-rpc.ts";
import { policyMethods } from "../../../actors/sampler/policy.ts";
import type { DiscreteGame } from "../../../envs/env.ts";
import { envTag } from "../../../envs/registry.ts";
import type { RemoteAsk } from "../../../envs/remote/protocol.ts";
import { openLocal } from "../../../envs/tag.ts";
import { type Asked, jsonService } from "../../envs/outside/json-service.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, startOneThread, tinyConfig } from "../supervisor/tiny-run.ts";

const folder = join(temporaryFolder(), "run");
const config = tinyConfig(folder, { samplers: 1, updates: 1, warmStart: "shared" });
beforeAll(async () => {
  await playRun(folder, config);
}, 300_000);

async function evaluate(env: Partial<RunConfig["env"]>, warn = (text: string) => expect(text).toBe("")) {
  const validate = { ...config.validate, episodes: 48, firstSeed: 900, temperature: 1 };
  const changed = { ...config, env: { ...config.env, ...env }, validate };
  const saved = await savedPolicy(folder, config, null);
  const { methods } = inThisThread(policyMethods());
  const weights = await startSavedPolicy(saved, changed, 16, methods, () => {});
  const { dialogue } = saved;
  const evaluations = await evaluatePolicy({
    config: changed,
    policy: methods,
    dialogue,
    weights,
    slots: 16,
    clock: realClock,
    warn,
  });
  return [...evaluations.values()][0]!;
}

/** The Bandit as a remote env. Says of the board what the Bandit's own brief says. `spoil` may answer in its place. */
function banditService(spoil: (asked: Asked, layout: number) => Response | null = () => null) {
  const tag = envTag("Bandit");
  const games = new Map<string, DiscreteGame>();
  const layouts = new Map<string, number>();
  const shown = (game: DiscreteGame) => tag.brief(game.render());
  const service = jsonService((asked) => {
    if (asked.path === "/health") return { protocol: 1, envs: ["bandit"] };
    const ask = { ask: asked.path.slice(1), ...(asked.body as object) } as RemoteAsk;
    if (ask.ask === "open") layouts.set(ask.episode, ask.layoutSeed);
    const spoilt = spoil(asked, layouts.get(ask.episode)!);
    if (spoilt !== null) return spoilt;
    if (ask.ask === "open") {
      const game = openLocal(tag, { layout: ask.layoutSeed, dynamics: ask.dynamicsSeed }) as DiscreteGame;
      games.set(ask.episode, game);
      return { observation: shown(game), actions: game.actions };
    }
    const game = games.get(ask.episode)!;
    if (ask.ask === "step") {
      const { message, ...effect } = game.act(game.actions.indexOf(ask.action));
      return { ...effect, observation: message };
    }
    games.delete(ask.episode);
    return {};
  });
  return { service, games };
}

describe("a policy on a remote env", () => {
  test("reaches exactly what it reaches on the same env at home, and leaves no episode open", async () => {
    const { service, games } = banditService();
    await using server = service;
    const remote = await evaluate({ tag: "Remote", options: { url: server.url } });
    // A remote env has no scorer of thoughts, and its tickets have another tag.
    const comparable = ({ played, thoughts: _, ...figures }: typeof remote) => ({
      ...figures,
      replies: played.map(({ outcome }) => "turns" in outcome && outcome.turns.map(({ reply }) => reply)),
    });
    expect(comparable(remote)).toEqual(comparable(await evaluate({ tag: "Bandit" })));
    expect([remote.success > 0.2, remote.meanActions > 0.5]).toEqual([true, true]);
    expect(games.size).toBe(0);
    expect(server.asked.filter(({ path }) => path === "/step").length).toBeGreaterThan(24);
  });

  test("is not judged by episodes that the server could not play", async () => {
    const stuck = () => Response.json({ error: "the arm is stuck" }, { status: 422 });
    const { service } = banditService(({ path }) => (path === "/step" ? stuck() : null));
    await using server = service;
    // Episodes that were under way may be closed when the server is gone.
    const error = await evaluate({ tag: "Remote", options: { url: server.url } }, () => {}).catch(String);
    expect(error).toMatch(
      /^Error: board 9\d\d of Remote could not be played: Remote#9\d\d\/\d+ turn 0: Error: the remote env/,
    );
    expect(error).toContain("/step: answers 422: the arm is stuck.");
  });

  test("is trained on it by a run, which counts what the server could not play and learns from the rest", async () => {
    const copy = join(temporaryFolder(), "run");
    cpSync(folder, copy, { recursive: true });
    const longer = tinyConfig(copy, { samplers: 1, updates: config.learner.updates + 3 });
    const stuck = () => Response.json({ error: "the arm is stuck" }, { status: 422 });
    // Boards of training alone: chance and validation have to be known.
    const { service, games } = banditService(({ path }, layout) =>
      path === "/step" && layout >= longer.rollout.firstSeed && layout % 4 === 0 ? stuck() : null,
    );
    await using server = service;
    const remote = { ...longer, env: { ...longer.env, tag: "Remote", options: { url: server.url } } };
    const lines: string[] = [];
    const run = await startOneThread({
      run: "run",
      folder: copy,
      config: remote,
      event: () => {},
      output: (_, line) => lines.push(line),
    });
    expect(await run.ended).toEqual({ ok: true, reason: "learner finished" });
    using db = new Database(join(copy, "run.sqlite"), { readonly: true });
    const played = db
      .query(
        "SELECT status, reward, trained_in, detail FROM episodes JOIN bodies USING (id) WHERE env = 'Remote' AND purpose = 'train'",
      )
      .all() as { status: string; reward: number | null; trained_in: number | null; detail: string | null }[];
    const broken = played.filter(({ status }) => status === "envError");
    expect(played.length).toBe(3 * 16);
    expect(broken.length).toBeGreaterThan(3);
    for (const { reward, trained_in, detail } of broken) {
      expect([reward, trained_in]).toEqual([null, null]);
      expect(detail).toContain("the arm is stuck");
    }
    expect(played.filter(({ trained_in }) => trained_in !== null).length).toBeGreaterThan(20);
    expect(games.size).toBe(0);
  }, 300_000);
});
