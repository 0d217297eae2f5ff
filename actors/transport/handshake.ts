/**
 * How a connection between actors begins: the connecting end asks `hello`, the listening end answers `welcome`.
 *
 * - A message before `hello` closes the connection.
 * - Each end refuses the other end if the protocol versions differ. The connecting end also refuses a listener of another run.
 * - An actor may repeat its `hello` to report its url. A guest must say `hello` with the name that it gave to the gate.
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
import { failed } from "./refusals.ts";
import type { Handler, Peer } from "./transport.ts";

export type Hello = Messages["hello"];

/** The name, role and address that an actor reports in `hello`. */
export interface Identity {
  readonly actor: string;
  readonly role: Role;
  /** The address at which other actors connect to this actor; null: it does not listen, or does not listen yet. */
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
 * Asks `hello` on a new connection.
 *
 * @param run  the run that the other end must belong to, if known
 * @returns the run of the other end
 * @throws {Error} if the other end does not answer or refuses, or if its protocol version or run differs
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

/** A handler that gets the `hello` of the sender with each message. */
export interface HostHandler {
  /** Called after the welcome to a peer, and again after each repeated hello. */
  joined?(peer: Peer, who: Hello): void;
  told(peer: Peer, message: Tell, who: Hello): void;
  asked(peer: Peer, message: Exclude<Ask, Hello>, who: Hello): Answer | Promise<Answer>;
  left?(peer: Peer, who: Hello, reason: string): void;
}

interface Client {
  readonly hello: Hello;
  /** True after the call of `HostHandler.joined`. This call comes before the handler's other calls, but after `asked` has returned the welcome. */
  announced: boolean;
  /** True after the first call of `HostHandler.joined` for this peer, also after an earlier hello. */
  joined: boolean;
}

/** Makes a `Handler` that does the handshake of each peer and then calls `handler`. */
export function welcoming(run: string, handler: HostHandler): Handler {
  const clients = new Map<Peer, Client>();

  function announce(peer: Peer, client: Client): void {
    if (client.announced || peer.closed) return;
    client.announced = true;
    client.joined = true;
    handler.joined?.(peer, client.hello);
  }

  function helloFrom(peer: Peer, type: string): Hello {
    const client = clients.get(peer);
    if (client === undefined) throw new ProtocolError(`${type} came before hello`);
    announce(peer, client);
    return client.hello;
  }

  function welcome(peer: Peer, hello: Hello): Answer {
    if (hello.protocol !== PROTOCOL_VERSION) {
      return failed("protocol", otherVersion(hello.actor, hello.protocol, "this run speaks"));
    }
    if (peer.guest !== undefined && peer.guest !== hello.actor) {
      return failed("protocol", `guest ${peer.guest} said hello as ${hello.actor}`);
    }
    const before = clients.get(peer);
    if (before !== undefined && (before.hello.actor !== hello.actor || before.hello.role !== hello.role)) {
      const { role, actor } = before.hello;
      return failed("protocol", `${hello.role} ${hello.actor} said hello on the connection of ${role} ${actor}`);
    }
    const client = { hello, announced: false, joined: before?.joined ?? false };
    clients.set(peer, client);
    queueMicrotask(() => {
      try {
        announce(peer, client);
      } catch (error) {
        // `handler.left` gets this reason, so the actor can log the reason.
        peer.close(`could not accept ${hello.actor}: ${describeError(error)}`);
      }
    });
    return { type: "welcome", run, protocol: PROTOCOL_VERSION };
  }

  return {
    told: (peer, message) => handler.told(peer, message, helloFrom(peer, message.type)),
    asked(peer, message) {
      if (message.type === "hello") return welcome(peer, message);
      return handler.asked(peer, message, helloFrom(peer, message.type));
    },
    closed(peer, reason) {
      const client = clients.get(peer);
      clients.delete(peer);
      if (client?.joined) handler.left?.(peer, client.hello, reason);
    },
  };
}

const otherVersion = (who: string, theirs: number, weSpeak: string): string =>
  `${who} speaks protocol ${theirs}, ${weSpeak} ${PROTOCOL_VERSION}. Use the same version of Bunraku at both ends.`;
