/** A sampler plays its tickets with the right weights, for the learner that sent them. */
import { beforeEach, describe, expect, test } from "bun:test";
import type { PlayedOutcome } from "../../../actors/protocol.ts";
import { envTag } from "../../../envs/registry.ts";
import { aDigest, someTickets } from "../../fixtures.ts";
import { ASK_MS, bandits, envsOf, FakeLearner, hold, startSampler, ticket, World, weights } from "./stage.ts";

let world: World;
let learner: FakeLearner;
let env: Awaited<ReturnType<typeof bandits>>;
beforeEach(async () => {
  world = new World();
  learner = new FakeLearner();
  await learner.listen(world);
  env = await bandits(world, "env-0");
});

const finished = () => learner.of("episode.finished").map(({ episode }) => episode);
const loaded = () => learner.of("weights.loaded").map(({ version, digest }) => [version, digest[0]]);

/** Connected, and with version 1 in use. */
async function started(options: Parameters<typeof startSampler>[1] = {}) {
  const all = startSampler(world, options);
  await world.settle();
  learner.tell(weights(1));
  await world.settle();
  return all;
}

describe("a sampler", () => {
  test("reports its slots, loads the weights, acknowledges their digest, plays, and sends the outcome", async () => {
    const { policy, errors } = await started({ slots: 3 });
    expect(learner.heard).toEqual([
      { type: "sampler.ready", actor: "sampler-0", slots: 3 },
      { type: "weights.loaded", actor: "sampler-0", version: 1, digest: aDigest("a") },
    ]);
    learner.play(ticket("e0", { attempt: 2 }));
    await world.settle();
    const [one] = learner.of("episode.finished");
    expect(one).toMatchObject({ actor: "sampler-0", episode: "e0", attempt: 2, outcome: { status: "scored" } });
    expect((one!.outcome as PlayedOutcome).trajectory).toMatchObject({ version: 1, digest: aDigest("a") });
    expect([policy.played, errors]).toEqual([["e0 2"], []]);
    expect(env.server.openCount).toBe(0);
  });

  test("plays as many at once as it has slots; the others wait", async () => {
    const { policy, sampler } = await started({ slots: 2 });
    const release = hold(policy);
    learner.play(...someTickets(5));
    await world.settle();
    expect([policy.replying, sampler.doing()]).toEqual([2, "playing 2 episodes with version 1"]);
    release();
    await world.settle();
    expect([finished(), policy.mostAtOnce]).toEqual([["e0", "e1", "e2", "e3", "e4"], 2]);
  });

  test("plays no ticket before it has weights", async () => {
    const { policy } = startSampler(world);
    await world.settle();
    learner.play(ticket("e0"));
    await world.settle();
    expect(policy.played).toEqual([]);
    learner.tell(weights(1));
    await world.settle();
    expect(finished()).toEqual(["e0"]);
  });

  test("plays an exact ticket with its version alone, and another with its own or a newer one", async () => {
    const { policy } = await started();
    learner.tell(weights(4, "b"));
    await world.settle();
    learner.play(
      ticket("old", { version: 3 }),
      ticket("future", { version: 5 }),
      ticket("right", { version: 4 }),
      ticket("any", { version: 3, exact: false }),
      ticket("later", { version: 5, exact: false }),
    );
    await world.settle();
    expect([finished(), policy.played]).toEqual([
      ["right", "any"],
      ["right 0", "any 0"],
    ]);
    for (const { outcome } of learner.of("episode.finished"))
      expect((outcome as PlayedOutcome).trajectory.version).toBe(4);
  });

  test("changes weights only while nothing is played, and plays no further ticket with the old ones", async () => {
    const { policy } = await started();
    const release = hold(policy);
    learner.play(ticket("first"));
    await world.settle();
    learner.tell(weights(2, "b"));
    learner.play(ticket("second", { exact: false }));
    await world.settle();
    expect([policy.loads, policy.played]).toEqual([[1], ["first 0"]]);
    release();
    await world.settle();
    expect(loaded()).toEqual([
      [1, "a"],
      [2, "b"],
    ]);
    const versions = learner.of("episode.finished").map(({ outcome }) => (outcome as PlayedOutcome).trajectory.version);
    expect([finished(), versions]).toEqual([
      ["first", "second"],
      [1, 2],
    ]);
  });

  test("loads the newest of several weights that waited", async () => {
    const { policy } = await started();
    const release = hold(policy);
    learner.play(ticket("e0"));
    await world.settle();
    for (const version of [2, 3, 4]) learner.tell(weights(version, "b"));
    await world.settle();
    release();
    await world.settle();
    expect([policy.loads, loaded().at(-1)]).toEqual([
      [1, 4],
      [4, "b"],
    ]);
  });

  test("loads one version at a time, and then the newest of those that came meanwhile", async () => {
    const { policy } = startSampler(world);
    const slow = Promise.withResolvers<string>();
    policy.found = ({ version, digest }) => (version === 1 ? slow.promise : digest);
    await world.settle();
    for (const version of [1, 2, 3]) {
      learner.tell(weights(version, "abc"[version - 1]!));
      await world.settle();
    }
    expect(policy.loads).toEqual([1]);
    slow.resolve(aDigest("a"));
    await world.settle();
    expect([policy.loads, loaded().at(-1)]).toEqual([
      [1, 3],
      [3, "c"],
    ]);
  });

  test("does not load bytes again that it holds under another version", async () => {
    const { policy } = await started();
    learner.tell(weights(2, "a"));
    await world.settle();
    expect([policy.loads, loaded().at(-1)]).toEqual([[1], [2, "a"]]);
  });
});

describe("weights between turns", () => {
  const sokoban = envTag("SimpleSokoban", {});
  const turnsOf = (i: number) =>
    (learner.of("episode.finished")[i]!.outcome as PlayedOutcome).trajectory.turns.map(({ version }) => version);

  /** Plays episodes of three turns. No reply of the fake policy is an action of Sokoban. */
  async function playing(...episodes: string[]) {
    await envsOf(world, "env-3", sokoban, 3);
    const all = await started({ weightsBetween: "turns", envs: ["env-3"], tag: sokoban });
    const release = hold(all.policy);
    learner.play(...episodes.map((episode) => ticket(episode, { env: "SimpleSokoban", exact: false })));
    await world.settle();
    return { ...all, release };
  }

  test("are loaded when no reply is written, and each turn names the version that wrote it", async () => {
    const { policy, release } = await playing("e0");
    expect(policy.replying).toBe(1);
    learner.tell(weights(2, "b"));
    await world.settle();
    expect(policy.loads).toEqual([1]);
    release();
    await world.settle();
    expect([policy.loads, loaded().at(-1), finished()]).toEqual([[1, 2], [2, "b"], ["e0"]]);
    expect(turnsOf(0)).toEqual([undefined, 2, 2]);
    expect((learner.of("episode.finished")[0]!.outcome as PlayedOutcome).trajectory).toMatchObject({
      version: 1,
      digest: aDigest("a"),
    });
  });

  test("hold replies and tickets back until they are loaded", async () => {
    const { policy, release } = await playing("e0");
    const slow = Promise.withResolvers<string>();
    policy.found = () => slow.promise;
    learner.tell(weights(2, "b"));
    learner.play(ticket("e1", { env: "SimpleSokoban", exact: false }));
    release();
    await world.settle();
    expect([policy.replying, policy.played, finished()]).toEqual([0, ["e0 0"], []]);
    slow.resolve(aDigest("b"));
    await world.settle();
    expect(finished()).toEqual(["e0", "e1"]);
    expect([turnsOf(0), turnsOf(1)]).toEqual([
      [undefined, 2, 2],
      [undefined, undefined, undefined],
    ]);
  });

  test("let a waiting reply go when the connection is lost", async () => {
    const { policy, sampler, release } = await playing();
    const slow = Promise.withResolvers<void>();
    policy.gates.set("e0 0", slow.promise);
    learner.play(...["e0", "e1"].map((episode) => ticket(episode, { env: "SimpleSokoban", exact: false })));
    await world.settle();
    learner.tell(weights(2, "b"));
    release();
    await world.settle();
    expect([policy.loads, sampler.playing]).toEqual([[1], 2]);
    learner.peers[0]!.close("cut");
    await world.settle();
    slow.resolve();
    await world.after(100);
    expect([sampler.playing, finished(), policy.loads]).toEqual([0, [], [1]]);
  });
});

describe("weights that are wrong", () => {
  test("are reported by their digest and never used", async () => {
    const { policy, failures } = startSampler(world);
    policy.found = () => aDigest("f");
    await world.settle();
    learner.tell(weights(1));
    await world.settle();
    learner.play(ticket("e0"));
    await world.settle();
    expect([loaded(), policy.played, failures]).toEqual([[[1, "f"]], [], []]);
  });

  test("that cannot be loaded end the sampler, which could never play again", async () => {
    const { policy, failures } = startSampler(world);
    policy.found = () => new Error("cannot load weights of version 1");
    await world.settle();
    learner.tell(weights(1));
    await world.settle();
    expect([failures, loaded()]).toEqual([[new Error("cannot load weights of version 1")], []]);
  });

  test.each([
    ["gone", (found: PromiseWithResolvers<string>) => found.reject(new Error("no such file"))],
    ["the newer bytes", (found: PromiseWithResolvers<string>) => found.resolve(aDigest("b"))],
  ])("do not matter if newer ones have replaced them: %s", async (_, end) => {
    const { policy, failures } = startSampler(world);
    const found = Promise.withResolvers<string>();
    policy.found = ({ version, digest }) => (version === 1 ? found.promise : digest);
    await world.settle();
    learner.tell(weights(1));
    await world.settle();
    learner.tell(weights(2, "b"));
    await world.settle();
    end(found);
    await world.settle();
    expect([failures, loaded()]).toEqual([[], [[2, "b"]]]);
  });
});

describe("a lost connection", () => {
  test("drops its tickets and outcomes; the weights come again on the next one", async () => {
    const { policy } = await started({ slots: 1 });
    const release = hold(policy);
    learner.play(ticket("e0"), ticket("e1"));
    await world.settle();
    learner.peers[0]!.close("cut");
    await world.after(100);
    release();
    await world.settle();
    expect([learner.peers.length, finished(), policy.played]).toEqual([2, [], ["e0 0"]]);
    learner.play(ticket("e1", { attempt: 1 }));
    await world.settle();
    expect(policy.played).toEqual(["e0 0", "e1 1"]);
  });

  test("does not play an episode twice at once: the second attempt waits for the first", async () => {
    const { policy } = await started();
    const release = hold(policy);
    learner.play(ticket("e0"));
    await world.settle();
    learner.peers[0]!.close("cut");
    await world.after(100);
    learner.tell(weights(1));
    learner.play(ticket("e0", { attempt: 1 }));
    await world.settle();
    expect(policy.played).toEqual(["e0 0"]);
    release();
    await world.settle();
    expect(learner.of("episode.finished").map(({ attempt }) => attempt)).toEqual([1]);
    expect(policy.mostAtOnce).toBe(1);
  });

  test("to a learner that counts versions from the start confuses nothing", async () => {
    const { policy } = await started();
    learner.tell(weights(7, "c"));
    await world.settle();
    await learner.close();
    await world.settle();
    const next = new FakeLearner();
    await next.listen(world);
    await world.after(200);
    next.tell(weights(2, "b"));
    await world.settle();
    next.play(ticket("e0", { version: 2 }));
    await world.settle();
    expect(policy.loads).toEqual([1, 7, 2]);
    expect(next.of("weights.loaded")).toMatchObject([{ version: 2, digest: aDigest("b") }]);
    expect(next.of("episode.finished")).toMatchObject([{ episode: "e0", outcome: { trajectory: { version: 2 } } }]);
  });

  test("while weights are loading does not report them to the next learner", async () => {
    const { policy, failures } = startSampler(world);
    const slow = Promise.withResolvers<string>();
    policy.found = ({ version, digest }) => (version === 5 ? slow.promise : digest);
    await world.settle();
    learner.tell(weights(5, "e"));
    await world.settle();
    learner.peers[0]!.close("cut");
    await world.after(100);
    slow.resolve(aDigest("e"));
    await world.settle();
    expect(loaded()).toEqual([]);
    learner.tell(weights(1));
    await world.settle();
    expect([loaded(), failures]).toEqual([[[1, "a"]], []]);
  });
});

describe("an outcome", () => {
  test("is sent until the learner answers", async () => {
    await started();
    const taken = learner.answer;
    learner.answer = () => undefined;
    learner.play(ticket("e0"));
    await world.after(ASK_MS);
    await world.after(ASK_MS);
    expect(finished()).toEqual(["e0", "e0", "e0"]);
    learner.answer = taken;
    await world.after(ASK_MS);
    await world.after(ASK_MS);
    expect(finished().length).toBe(4);
  });

  test("that the learner refuses is logged, and not sent again", async () => {
    const { errors } = await started();
    learner.answer = () => ({ type: "failed", code: "protocol", detail: "not of this run" });
    learner.play(ticket("e0"));
    await world.after(ASK_MS);
    await world.after(ASK_MS);
    expect([finished(), errors]).toEqual([["e0"], ["refused: the learner refused e0: not of this run"]]);
  });

  test("that no message can carry is aborted at once, and says why", async () => {
    const { policy } = await started();
    const tokens = new Array(150_000).fill(5);
    Object.assign(policy.methods, { reply: async () => ({ tokens, logProbs: tokens.map(() => -1), cut: true }) });
    learner.play(ticket("e0"));
    await world.settle();
    expect(learner.of("episode.finished")).toMatchObject([
      { episode: "e0", outcome: { status: "aborted", detail: expect.stringMatching(/frameBytesMax is 1048576$/) } },
    ]);
  });

  test("of a broken policy is aborted, and says why", async () => {
    const { policy, errors } = await started();
    policy.broken = true;
    learner.play(ticket("e0"));
    await world.settle();
    const detail = "RangeError: logit 3 is NaN";
    expect(learner.of("episode.finished")).toMatchObject([{ outcome: { status: "aborted", detail } }]);
    expect(errors).toEqual([`policy: e0: ${detail}`]);
    expect(env.server.openCount).toBe(0);
  });
});

describe("a lost env server", () => {
  test("costs an episode nothing but a second try, on another one", async () => {
    const other = await bandits(world, "env-1");
    const { policy } = await started({ envs: ["env-0", "env-1"] });
    const release = hold(policy);
    learner.play(ticket("e0"));
    await world.settle();
    const [holder] = [env, other].filter(({ server }) => server.openCount === 1);
    await holder!.listener.close();
    await world.settle();
    release();
    await world.settle();
    expect(learner.of("episode.finished")).toMatchObject([{ attempt: 0, outcome: { status: "scored" } }]);
    expect(policy.played).toEqual(["e0 0", "e0 0"]);
  });

  test("and no other in time is an env error after as many tries as allowed", async () => {
    const { policy } = await started({ triesMax: 2 });
    await env.listener.close();
    await world.settle();
    learner.play(ticket("e0"));
    for (let i = 0; i < 4; i++) await world.after(ASK_MS);
    const detail = `no env server for e0 in ${ASK_MS} ms (try 2 of 2)`;
    expect(learner.of("episode.finished")).toMatchObject([{ outcome: { status: "envError", detail } }]);
    expect(policy.played).toEqual([]);
  });
});

test("a stopped sampler finishes what it plays and begins nothing", async () => {
  const { policy, sampler } = await started({ slots: 1 });
  const release = hold(policy);
  learner.play(ticket("e0"), ticket("e1"));
  await world.settle();
  sampler.stop("enough");
  await world.settle();
  expect(learner.of("sampler.leaving")).toMatchObject([{ reason: "enough" }]);
  release();
  await world.settle();
  expect([finished(), policy.played]).toEqual([["e0"], ["e0 0"]]);
});
