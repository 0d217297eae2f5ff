/** Each ticket ends once, whatever happens to its samplers. */
import { beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { TicketBook } from "../../../actors/learner/tickets.ts";
import type { FinishedTicket } from "../../../actors/play/finished-ticket.ts";
import type { Outcome, Ticket } from "../../../actors/protocol.ts";
import { anOutcome, aTicket, aTrajectory } from "../../fixtures.ts";
import { FakeClock } from "../fake-clock.ts";

const LEASE_MS = 1000;

const ticket = (episode: string, fields: Partial<Ticket> = {}): Ticket => aTicket({ episode, version: 3, ...fields });
const tickets = (count: number, name = "e") => Array.from({ length: count }, (_, i) => ticket(`${name}${i}`));

const scored = (episode: string): Outcome =>
  anOutcome({ stop: "success", success: true, trajectory: aTrajectory({ version: 3 }), finalObservation: episode });
const envError: Outcome = { status: "envError", detail: "the board is on fire" };

let clock: FakeClock;
let book: TicketBook;
beforeEach(() => {
  clock = new FakeClock();
  book = new TicketBook({ clock, leaseMs: LEASE_MS, attemptsMax: 3 });
});
const names = (granted: readonly Ticket[]) => granted.map(({ episode }) => episode);
const grant = (sampler: string, slotsFree = 100, version: number | null = 3) => book.grant(sampler, slotsFree, version);

describe("a batch", () => {
  test("resolves in the order it was issued, however its episodes end", async () => {
    const batch = book.issue(tickets(3));
    for (const { episode, attempt } of grant("s").reverse()) book.finish("s", episode, attempt, scored(episode));
    const finished = await batch;
    expect(finished.map((one) => [one.ticket.episode, one.sampler, one.outcome])).toEqual(
      ["e0", "e1", "e2"].map((episode) => [episode, "s", scored(episode)]),
    );
  });

  test("without tickets is done at once", async () => {
    expect(await book.issue([])).toEqual([]);
  });

  test("is served before a younger one", () => {
    void book.issue(tickets(2, "old"));
    void book.issue(tickets(2, "new"));
    expect(names(grant("s", 3))).toEqual(["old0", "old1", "new0"]);
  });

  test("is refused whole if an episode of it is open already", () => {
    void book.issue([ticket("a")]);
    const message = "cannot issue episode a: it is open already";
    expect(() => book.issue([ticket("b"), ticket("a")])).toThrow(new RangeError(message));
    expect(() => book.issue([ticket("c"), ticket("c")])).toThrow("cannot issue episode c");
    expect(names(grant("s"))).toEqual(["a"]);
  });

  test("can use a name again once its episode has ended", async () => {
    const first = book.issue([ticket("a")]);
    grant("s");
    book.finish("s", "a", 0, scored("a"));
    await first;
    void book.issue([ticket("a")]);
    expect(names(grant("s"))).toEqual(["a"]);
  });
});

describe("a grant", () => {
  test("is never more than there is room for", () => {
    void book.issue(tickets(10));
    expect(names(grant("a", 2))).toEqual(["e0", "e1"]);
    expect(grant("a", 0)).toEqual([]);
    expect(book.leased("a")).toBe(2);
  });

  test("holds only what the sampler's weights may play", () => {
    void book.issue([
      ticket("exactly 3"),
      ticket("exactly 4", { version: 4 }),
      ticket("3 or newer", { exact: false }),
      ticket("4 or newer", { version: 4, exact: false }),
    ]);
    expect(grant("none", 9, null)).toEqual([]);
    expect(grant("old", 9, 2)).toEqual([]);
    expect(names(grant("newer", 9, 5))).toEqual(["3 or newer", "4 or newer"]);
    expect(names(grant("same", 9, 3))).toEqual(["exactly 3"]);
    expect(book.waiting).toBe(1);
  });
});

describe("a lease", () => {
  test("belongs to its sampler and attempt: only its holder's outcome counts, and only once", () => {
    void book.issue([ticket("a"), ticket("b")]);
    grant("s", 1);
    expect(book.finish("other", "a", 0, scored("a"))).toBe(false);
    expect(book.finish("s", "a", 1, scored("a"))).toBe(false);
    expect(book.finish("s", "b", 0, scored("b"))).toBe(false);
    expect(book.finish("s", "ghost", 0, scored("ghost"))).toBe(false);
    expect(book.finish("s", "a", 0, scored("a"))).toBe(true);
    expect(book.finish("s", "a", 0, scored("a"))).toBe(false);
    expect(book.counts.ignored).toBe(5);
  });

  test("that expires gives its ticket back, as the oldest, and a late outcome is not used", async () => {
    const batch = book.issue(tickets(3));
    grant("slow", 1);
    clock.advance(LEASE_MS - 1);
    expect(book.counts.expired).toBe(0);
    clock.advance(1);
    expect([book.counts.expired, book.leased("slow"), book.waiting]).toEqual([1, 0, 3]);
    expect(book.finish("slow", "e0", 0, scored("late"))).toBe(false);
    const again = grant("fast");
    expect(again.map(({ episode, attempt }) => [episode, attempt])).toEqual([
      ["e0", 1],
      ["e1", 0],
      ["e2", 0],
    ]);
    expect(book.finish("slow", "e0", 0, scored("late"))).toBe(false);
    for (const { episode, attempt } of again) book.finish("fast", episode, attempt, scored(episode));
    expect((await batch).map(({ sampler, outcome }) => [sampler, outcome])).toEqual(
      ["e0", "e1", "e2"].map((episode) => ["fast", scored(episode)]),
    );
  });

  test("expires on time, each from its own grant", () => {
    void book.issue(tickets(2));
    grant("a", 1);
    clock.advance(400);
    grant("b", 1);
    clock.advance(600);
    expect([book.leased("a"), book.leased("b")]).toEqual([0, 1]);
    clock.advance(400);
    expect([book.leased("b"), book.counts.expired]).toEqual([0, 2]);
  });

  test("that was finished in time does not expire later", () => {
    void book.issue([ticket("a")]);
    grant("s");
    expect(book.finish("s", "a", 0, scored("a"))).toBe(true);
    clock.jump(10 * LEASE_MS);
    expect(book.counts.expired).toBe(0);
  });

  test("of a lost sampler is for the others, in order and before younger tickets", () => {
    void book.issue(tickets(4));
    grant("a", 2);
    grant("b", 1);
    book.lost("a");
    expect([book.leased("a"), book.leased("b"), book.counts.retried]).toEqual([0, 1, 2]);
    const again = grant("c");
    expect(again.map(({ episode, attempt }) => [episode, attempt])).toEqual([
      ["e0", 1],
      ["e1", 1],
      ["e3", 0],
    ]);
  });

  test("changes nothing but the attempt", () => {
    void book.issue([ticket("a")]);
    grant("x");
    book.lost("x");
    expect(grant("y")).toEqual([ticket("a", { attempt: 1 })]);
  });
});

describe("after the last attempt", () => {
  test("a ticket that could not be played is aborted with a reason", async () => {
    const batch = book.issue([ticket("a")]);
    for (const sampler of ["x", "y"]) {
      grant(sampler);
      book.lost(sampler);
    }
    grant("z");
    clock.advance(LEASE_MS);
    expect(await batch).toEqual([
      {
        ticket: ticket("a", { attempt: 2 }),
        sampler: "z",
        outcome: { status: "aborted", detail: "episode a, attempt 3, by z: it took more than 1000 ms" },
      },
    ]);
    expect(book.waiting).toBe(0);
  });

  test.each([envError, { status: "aborted", detail: "the sampler gave up" } as const])(
    "$status stays what it is; before, the episode is played again",
    async (failure) => {
      const batch = book.issue([ticket("a")]);
      for (let attempt = 0; attempt < 3; attempt++) {
        expect(grant("s").map((granted) => granted.attempt)).toEqual([attempt]);
        expect(book.finish("s", "a", attempt, failure)).toBe(true);
      }
      expect((await batch)[0]!.outcome).toEqual(failure);
    },
  );

  test("an env that failed once is forgotten when the next attempt is scored", async () => {
    const batch = book.issue([ticket("a")]);
    grant("s");
    book.finish("s", "a", 0, envError);
    grant("s");
    book.finish("s", "a", 1, scored("a"));
    expect((await batch)[0]!.outcome).toEqual(scored("a"));
  });
});

/** What may happen, in any order, to a book and four samplers. */
const Happening = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("grant"), sampler: fc.nat(3), slots: fc.nat(6) }) },
  // `pick` chooses among everything ever granted, so doubled, late and reordered outcomes are common.
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("finish"), pick: fc.nat(), fails: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("lost"), sampler: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("wait"), ms: fc.integer({ min: 1, max: LEASE_MS }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("issue"), count: fc.integer({ min: 1, max: 5 }) }) },
) as fc.Arbitrary<
  | { kind: "grant"; sampler: number; slots: number }
  | { kind: "finish"; pick: number; fails: boolean }
  | { kind: "lost"; sampler: number }
  | { kind: "wait"; ms: number }
  | { kind: "issue"; count: number }
>;

test("it ends every ticket exactly once, in order, under any loss, delay, doubling and reordering", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(Happening, { maxLength: 120 }), async (happenings) => {
      const clock = new FakeClock();
      const book = new TicketBook({ clock, leaseMs: LEASE_MS, attemptsMax: 3 });
      const granted: { sampler: string; ticket: Ticket; endsAt: number }[] = [];
      /** Seen from outside: who may end an episode now. */
      const holder = new Map<string, { sampler: string; attempt: number; endsAt: number }>();
      const issued: Ticket[][] = [];
      const answers: Promise<FinishedTicket[]>[] = [];
      const taken = new Map<string, Outcome>();

      const issue = (count: number) => {
        const batch = tickets(count, `b${issued.length}.`);
        issued.push(batch);
        answers.push(book.issue(batch));
      };
      const grantTo = (sampler: string, slots: number) => {
        for (const ticket of book.grant(sampler, slots, 3)) {
          // No other sampler may hold it.
          expect(holder.has(ticket.episode)).toBe(false);
          expect(taken.has(ticket.episode)).toBe(false);
          const lease = { sampler, attempt: ticket.attempt, endsAt: clock.now() + LEASE_MS };
          holder.set(ticket.episode, lease);
          granted.push({ ticket, ...lease });
        }
      };
      const finish = (sampler: string, { episode, attempt }: Ticket, outcome: Outcome) => {
        const lease = holder.get(episode);
        const valid = lease?.sampler === sampler && lease.attempt === attempt;
        expect(book.finish(sampler, episode, attempt, outcome)).toBe(valid);
        if (!valid) return;
        holder.delete(episode);
        if (outcome.status === "scored") taken.set(episode, outcome);
      };
      const drop = (which: (lease: { sampler: string; endsAt: number }) => boolean) => {
        for (const [episode, lease] of [...holder]) if (which(lease)) holder.delete(episode);
      };

      issue(4);
      for (const happening of happenings) {
        switch (happening.kind) {
          case "grant":
            grantTo(`s${happening.sampler}`, happening.slots);
            break;
          case "finish": {
            const one = granted[happening.pick % Math.max(1, granted.length)];
            if (one === undefined) break;
            finish(
              one.sampler,
              one.ticket,
              happening.fails ? envError : scored(`${one.ticket.episode} ${one.sampler}`),
            );
            break;
          }
          case "lost":
            book.lost(`s${happening.sampler}`);
            drop(({ sampler }) => sampler === `s${happening.sampler}`);
            break;
          case "wait":
            clock.advance(happening.ms);
            drop(({ endsAt }) => endsAt <= clock.now());
            break;
          case "issue":
            issue(happening.count);
            break;
          default:
            happening satisfies never;
        }
        const leases = ["s0", "s1", "s2", "s3"].reduce((sum, sampler) => sum + book.leased(sampler), 0);
        expect(leases).toBe(holder.size);
      }
      // A sampler that always plays brings everything to its end, so no ticket was lost on the way.
      clock.advance(LEASE_MS);
      holder.clear();
      for (let before = -1; before !== granted.length; ) {
        before = granted.length;
        grantTo("last", 100);
        for (const { sampler, ticket } of granted.slice(before))
          finish(sampler, ticket, scored(`${ticket.episode} last`));
      }
      expect(book.waiting).toBe(0);
      const finished = await Promise.all(answers);
      expect(finished.map((batch) => batch.map(({ ticket }) => ticket))).toEqual(
        issued.map((batch) => batch.map((one) => ({ ...one, attempt: expect.any(Number) }))),
      );
      for (const { ticket, outcome } of finished.flat()) {
        expect(ticket.attempt).toBeLessThan(3);
        // What was taken is what the learner gets; all others failed in each of their attempts.
        if (outcome.status === "scored") expect(outcome).toBe(taken.get(ticket.episode) as typeof outcome);
        else expect([taken.has(ticket.episode), ticket.attempt]).toEqual([false, 2]);
      }
    }),
    { numRuns: 500 },
  );
});

const kind = fc.record({ version: fc.nat(3), exact: fc.boolean() });
const ListHappening = fc.oneof(
  fc.record({ issue: fc.array(kind, { maxLength: 6 }) }),
  fc.record({ take: fc.nat(8), version: fc.nat(4) }),
  fc.record({ putBack: fc.nat() }),
);

test("waiting tickets are granted oldest first among those that a version may play, also after some were put back", () => {
  fc.assert(
    fc.property(fc.array(ListHappening, { maxLength: 60 }), (happenings) => {
      const book = new TicketBook({ clock, leaseMs: LEASE_MS, attemptsMax: Number.POSITIVE_INFINITY });
      /** The waiting tickets, and the leased tickets. The numbers in their names are in the order of issue. */
      let list: Ticket[] = [];
      const away: Ticket[] = [];
      let issued = 0;
      for (const happening of happenings) {
        if ("issue" in happening) {
          const young = happening.issue.map((fields) => ticket(`e${issued++}`, fields));
          void book.issue(young);
          list.push(...young);
        } else if ("take" in happening) {
          const { take, version } = happening;
          const expected = list.filter((one) => (one.exact ? one.version === version : one.version <= version));
          const granted = book.grant("s", take, version);
          expect(granted).toEqual(expected.slice(0, take));
          list = list.filter(({ episode }) => !names(granted).includes(episode));
          away.push(...granted);
        } else if (away.length > 0) {
          const [back] = away.splice(happening.putBack % away.length, 1);
          book.finish("s", back!.episode, back!.attempt, envError);
          list = [...list, { ...back!, attempt: back!.attempt + 1 }].sort(
            (a, b) => Number(a.episode.slice(1)) - Number(b.episode.slice(1)),
          );
        }
        expect(book.waiting).toBe(list.length);
      }
    }),
    { numRuns: 300 },
  );
});
