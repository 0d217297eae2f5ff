import { expect, test } from "bun:test";
import type { FinishedTicket } from "../../../actors/play/finished-ticket.ts";
import type { Ticket } from "../../../actors/protocol.ts";
import { playUpdate } from "../../../actors/training/rollout-queue.ts";
import { aConfig } from "../../fixtures.ts";

const config = aConfig({
  rollout: { groups: 2, groupSize: 2 },
  learner: { resampleRoundsMax: 1, filter: { strategy: "all" } },
});

/** Rewards of the turns by group and member. */
async function rounds(rewards: Readonly<Record<number, readonly (readonly number[])[]>>): Promise<number[]> {
  const tickets: number[] = [];
  const play = async (asked: readonly Ticket[]) => {
    tickets.push(asked.length);
    return asked.map((ticket) => {
      const { group, member } = ticket;
      const turns = (rewards[group] ?? [[0], [1]])[member]!.map((reward) => ({ reward }));
      return { ticket, outcome: { status: "scored", trajectory: { turns } } } as never as FinishedTicket;
    });
  };
  await playUpdate({ config, dispatcher: { play } as never }, 0, 1, { round: 0, actions: 1 }, ["Bandit", "Bandit"]);
  return tickets;
}

test("a group whose rewards differ only as sums in another order do is replaced", async () => {
  expect(await rounds({})).toEqual([4]);
  expect(
    await rounds({
      0: [
        [0.1, 0.2, 0.3],
        [0.3, 0.2, 0.1],
      ],
    }),
  ).toEqual([4, 2]);
});
