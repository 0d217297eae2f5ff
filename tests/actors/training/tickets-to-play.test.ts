/** Tickets follow from config, update and round alone. */

import { describe, expect, test } from "bun:test";
import { trainingTickets, validationTickets } from "../../../actors/training/tickets-to-play.ts";
import { aConfig } from "../../fixtures.ts";

const configOf = (changed: Record<string, object> = {}) =>
  aConfig({ rollout: { groups: 3, groupSize: 4, firstSeed: 500 }, learner: { filter: { strategy: "all" } } }, changed);

describe("the tickets of an update", () => {
  const tickets = trainingTickets(configOf(), 2, 9);

  test("are P groups of N; a group shares its board, and each member has chance of its own", () => {
    expect(tickets.map(({ group, member }) => [group, member])).toEqual(
      [0, 1, 2].flatMap((group) => [0, 1, 2, 3].map((member) => [group, member])),
    );
    // Updates 0 and 1 had boards 500 to 505.
    expect(tickets.map(({ layoutSeed }) => layoutSeed)).toEqual([506, 507, 508].flatMap((seed) => Array(4).fill(seed)));
    expect(new Set(tickets.map(({ dynamicsSeed }) => dynamicsSeed)).size).toBe(12);
    expect(tickets.every(({ version, exact, attempt }) => version === 9 && exact && attempt === 0)).toBe(true);
  });

  test("share chance within a group as well where RAGEN is reproduced", () => {
    const shared = trainingTickets(configOf({ prompt: { compat: "ragen-v2" } }), 2, 9);
    expect(shared.every(({ layoutSeed, dynamicsSeed }) => layoutSeed === dynamicsSeed)).toBe(true);
    const payouts = (compat: string) => {
      const config = configOf({ env: { tag: "Bandit" }, prompt: { compat } });
      return new Set(trainingTickets(config, 2, 9).map(({ dynamicsSeed }) => dynamicsSeed)).size;
    };
    expect([payouts("ragen-v1"), payouts("ragen-v2")]).toEqual([3, 12]);
  });

  test("have names that no other update and no validation has", () => {
    const config = configOf();
    const names = [0, 1, 10, 11].flatMap((update) => trainingTickets(config, update, 1));
    const others = ["v0", "v1", "v10"].flatMap((name) =>
      [0.5, 1].flatMap((t) => validationTickets(config, name, t, 1)),
    );
    const all = [...names, ...others].map(({ episode }) => episode);
    expect(new Set(all).size).toBe(all.length);
  });

  test("allow newer weights in async mode", () => {
    const config = configOf({ learner: { mode: "async", stalenessMax: 1, filter: { strategy: "all" } } });
    expect(trainingTickets(config, 0, 1).every(({ exact }) => !exact)).toBe(true);
  });
});

describe("the tickets of a validation", () => {
  test("are the same boards every time, one episode each, without a cut in what may be sampled", () => {
    const config = configOf({ rollout: { topP: 0.9, topK: 5 }, validate: { episodes: 6, firstSeed: 123 } });
    const [first, later] = [validationTickets(config, "v0", 0.5, 1), validationTickets(config, "v9", 0.5, 7)];
    expect(first.map(({ layoutSeed }) => layoutSeed)).toEqual([123, 124, 125, 126, 127, 128]);
    const chance = (tickets: typeof first) => tickets.map(({ layoutSeed, dynamicsSeed }) => [layoutSeed, dynamicsSeed]);
    expect(chance(later)).toEqual(chance(first));
    expect(first[0]).toMatchObject({ purpose: "validate", temperature: 0.5, topP: 1, topK: 0, exact: true });
  });
});

describe("the tickets of a mix", () => {
  const mix = [{ tag: "SimpleSokoban", groups: 1 }, { tag: "Bandit" }];
  const config = configOf({
    env: { mix },
    rollout: { groups: 3, groupSize: 2 },
    validate: { episodes: 2, groupSize: 2 },
  });

  test("name their env, group by group; boards go on from group to group", () => {
    const tickets = trainingTickets(config, 1, 1);
    expect(tickets.map(({ env }) => env)).toEqual([
      "SimpleSokoban",
      "SimpleSokoban",
      "Bandit",
      "Bandit",
      "Bandit",
      "Bandit",
    ]);
    expect(tickets.map(({ layoutSeed }) => layoutSeed - config.rollout.firstSeed)).toEqual([3, 3, 4, 4, 5, 5]);
  });

  test("of a validation are the same boards of each env, each played the configured number of times", () => {
    const tickets = validationTickets(config, "v0", 0.5, 1);
    expect(tickets.map(({ env, group, member, layoutSeed }) => [env, group, member, layoutSeed])).toEqual([
      ["SimpleSokoban", 0, 0, 123],
      ["SimpleSokoban", 0, 1, 123],
      ["SimpleSokoban", 1, 0, 124],
      ["SimpleSokoban", 1, 1, 124],
      ["Bandit", 2, 0, 123],
      ["Bandit", 2, 1, 123],
      ["Bandit", 3, 0, 124],
      ["Bandit", 3, 1, 124],
    ]);
    expect(new Set(tickets.map(({ episode }) => episode)).size).toBe(8);
    // Tries differ in chance, and the first is what it is without others.
    expect(new Set(tickets.map(({ dynamicsSeed }) => dynamicsSeed)).size).toBe(4);
    const alone = validationTickets({ ...config, validate: { ...config.validate, groupSize: 1 } }, "v0", 0.5, 1);
    expect(tickets.filter(({ member }) => member === 0)).toEqual(alone);
  });
});
