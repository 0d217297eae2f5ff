/** Waiting tickets, compared with a plain list that is sorted every time. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Waiting, WaitingTickets } from "../../../actors/learner/tickets.ts";
import { aTicket } from "../../fixtures.ts";

const entry = (serial: number, version: number, exact: boolean): Waiting => ({
  serial,
  ticket: aTicket({ episode: `e${serial}`, version, exact }),
});
const kind = fc.record({ version: fc.nat(3), exact: fc.boolean() });
const Happening = fc.oneof(
  fc.record({ append: fc.array(kind, { maxLength: 6 }) }),
  fc.record({ take: fc.nat(8), version: fc.nat(4) }),
  fc.record({ putBack: fc.nat() }),
);

test("are taken oldest first among those that a version may play, also after some were put back", () => {
  fc.assert(
    fc.property(fc.array(Happening, { maxLength: 60 }), (happenings) => {
      const waiting = new WaitingTickets<Waiting>();
      let list: Waiting[] = [];
      const away: Waiting[] = [];
      let serial = 0;
      for (const happening of happenings) {
        if ("append" in happening) {
          const young = happening.append.map(({ version, exact }) => entry(serial++, version, exact));
          waiting.append(young);
          list.push(...young);
        } else if ("take" in happening) {
          const { take, version } = happening;
          const expected = list
            .filter(({ ticket }) => (ticket.exact ? ticket.version === version : ticket.version <= version))
            .slice(0, take);
          expect(waiting.take(take, version)).toEqual(expected);
          list = list.filter((one) => !expected.includes(one));
          away.push(...expected);
        } else if (away.length > 0) {
          const [back] = away.splice(happening.putBack % away.length, 1);
          waiting.putBack(back!);
          list = [...list, back!].sort((a, b) => a.serial - b.serial);
        }
        expect(waiting.size).toBe(list.length);
      }
      const rest = [0, 1, 2, 3].flatMap((version) => waiting.take(Number.POSITIVE_INFINITY, version));
      expect(rest.sort((a, b) => a.serial - b.serial)).toEqual(list);
      expect(waiting.size).toBe(0);
    }),
    { numRuns: 300 },
  );
});
