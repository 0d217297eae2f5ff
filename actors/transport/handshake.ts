/**
 * How a connection between actors begins: the connecting end asks `hello`, the listening end answers `welcome`.
 *
 * - Before `hello` the listening end hears nothing else; an early message closes the connection.
 * - Both ends refuse another protocol version, and the connecting end another run.
 * - `hello` may be repeated by the same actor, to say its url once it has one.
 */
import { describeError } from "../errors.ts";
import {
  type Answer,
  type Ask,
  type Messages,
  PROTOCOL_VERSION,
  ProtocolError,
  type Role,
  type Tell,
} from "../protocol.ts";
import type { Handler, Peer } from "./transport.ts";

export type Hello = Messages["hello"];

/** Who an actor says it is. */
export interface Identity {
  readonly actor: string;
  readonly role: Role;
  /** Where others reach it; null if nobody connects to it, or not yet. */
  readonly url: string | null;
}

export const helloOf = ({ actor, role, url }: Identity): Hello => ({
  type: "hello",
  protocol: PROTOCOL_VERSION,
  actor,
  role,
  url,
});

/**
 * Introduce ourselves on a new connection.
 *
 * @param run The run the other end must belong to, if we know.
 * @throws {Error} saying why we do not belong together, or that no answer came.
 */
export async function sayHello(peer: Peer, me: Identity, deadlineMs: number, run?: string): Promise<string> {
  const answer = await peer.ask(helloOf(me), deadlineMs);
  if (answer.type === "failed") throw new Error(`${peer.name} did not welcome ${me.actor}: ${answer.detail}`);
  if (answer.protocol !== PROTOCOL_VERSION) throw new Error(otherVersion(peer.name, answer.protocol, "we speak"));
  if (run !== undefined && answer.run !== run) {
    throw new Error(`${peer.name} belongs to run ${answer.run}, and ${me.actor} to run ${run}`);
  }
  return answer.run;
}

/** A handler that knows who it talks with. */
export interface HostHandler {
  /** Said hello and was welcomed; again whenever it repeats its hello. */
  joined?(peer: Peer, who: Hello): void;
  told(peer: Peer, message: Tell, who: Hello): void;
  asked(peer: Peer, message: Exclude<Ask, Hello>, who: Hello): Answer | Promise<Answer>;
  left?(peer: Peer, who: Hello, reason: string): void;
}

interface Guest {
  who: Hello;
  /** The welcome is sent when `asked` returns; `joined` must come after it, and before anything else. */
  announced: boolean;
}

/** Put the handshake in front of a handler. */
export function welcoming(run: string, handler: HostHandler): Handler {
  const guests = new Map<Peer, Guest>();

  function announce(peer: Peer, guest: Guest): void {
    if (guest.announced || peer.closed) return;
    guest.announced = true;
    handler.joined?.(peer, guest.who);
  }

  function guestOf(peer: Peer, type: string): Guest {
    const guest = guests.get(peer);
    if (guest === undefined) throw new ProtocolError(`${type} came before hello`);
    announce(peer, guest);
    return guest;
  }

  function welcome(peer: Peer, who: Hello): Answer {
    if (who.protocol !== PROTOCOL_VERSION) {
      return { type: "failed", code: "protocol", detail: otherVersion(who.actor, who.protocol, "this run speaks") };
    }
    const before = guests.get(peer)?.who;
    if (before !== undefined && (before.actor !== who.actor || before.role !== who.role)) {
      const detail = `${who.role} ${who.actor} said hello on the connection of ${before.role} ${before.actor}`;
      return { type: "failed", code: "protocol", detail };
    }
    const guest = { who, announced: false };
    guests.set(peer, guest);
    queueMicrotask(() => {
      try {
        announce(peer, guest);
      } catch (error) {
        // `left` is told the reason, so the actor can log it.
        peer.close(`could not take in ${who.actor}: ${describeError(error)}`);
      }
    });
    return { type: "welcome", run, protocol: PROTOCOL_VERSION };
  }

  return {
    told: (peer, message) => handler.told(peer, message, guestOf(peer, message.type).who),
    asked(peer, message) {
      if (message.type === "hello") return welcome(peer, message);
      return handler.asked(peer, message, guestOf(peer, message.type).who);
    },
    closed(peer, reason) {
      const guest = guests.get(peer);
      guests.delete(peer);
      if (guest?.announced) handler.left?.(peer, guest.who, reason);
    },
  };
}

const otherVersion = (who: string, theirs: number, weSpeak: string): string =>
  `${who} speaks protocol ${theirs}, ${weSpeak} ${PROTOCOL_VERSION}. Use the same version of Bunraku at both ends.`;
