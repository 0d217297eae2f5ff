/**
 * The door is the port of the gate that other machines connect to. The door passes the bytes of each connection, unread, to the gate's server
 * on loopback. The gate does not open this port with Bun.serve: Bun.serve reports a connection only after a complete request, but the door
 * must count connections that have sent nothing yet.
 *
 * - A connection is a stranger until the gate has seen a valid token on it. One address has at most `strangersMax` strangers, and there are at
 *   most `connectionsMax + strangersMax` connections in total; the door closes a further connection at once. The door closes a stranger after
 *   `strangerMs`.
 * - The door connects to the server when a client sends its first byte. While one end takes no bytes, the door reads none from the other end.
 */
import type { Socket, TCPSocketListener } from "bun";
import type { Clock } from "../clock.ts";

export interface DoorOptions {
  readonly hostname: string;
  readonly port: number;
  /** Port of the gate's server on 127.0.0.1. */
  readonly serverPort: number;
  readonly connectionsMax: number;
  /** Maximum number of connections of one address that have shown no token. */
  readonly strangersMax: number;
  /** How long a connection that has shown no token may stay. */
  readonly strangerMs: number;
  readonly clock: Clock;
  readonly refused: (from: string, why: string) => void;
}

/** One of the two sockets of a relayed connection: the socket to the client, or the socket to the gate's server. */
interface End {
  /** null: the connection to the server is not open yet. */
  socket: Socket<End> | null;
  /** The end to which this end's bytes go; null: the client has sent nothing yet. */
  other: End | null;
  /** Bytes that this end has not taken yet. */
  unsent: Uint8Array[];
  /** True if the other end is closed. Then this end closes as soon as `unsent` is empty. */
  otherClosed: boolean;
  /** Cancels a timer of `strangerMs`. The timer closes a client that shows no token, or an end that does not take its last bytes. */
  cancel: () => void;
}

interface Client extends End {
  readonly from: string;
  stranger: boolean;
}

export class Door {
  readonly #options: DoorOptions;
  readonly #clients = new Set<Client>();
  /** The clients, by the local port of the socket that the door opened to the server for the client. */
  readonly #byPort = new Map<number, Client>();
  readonly #listener: TCPSocketListener<End>;

  /** @throws {Error} if the door cannot listen at this host and port */
  constructor(options: DoorOptions) {
    this.#options = options;
    const { hostname, port } = options;
    this.#listener = Bun.listen<End>({ hostname, port, socket: this.#handlers((socket) => this.#enter(socket)) });
  }

  get port(): number {
    return this.#listener.port;
  }

  /** The address of the client that sent a request. @param portSeen  the port from which the gate's server got the request */
  fromOf(portSeen: number): string {
    return this.#byPort.get(portSeen)?.from ?? "unknown";
  }

  /** The gate calls this when a request has shown a valid token. @param portSeen  as in `fromOf` */
  admit(portSeen: number): void {
    const client = this.#byPort.get(portSeen);
    if (client === undefined) return;
    client.stranger = false;
    client.cancel();
  }

  stop(): void {
    this.#listener.stop(true);
  }

  #enter(socket: Socket<End>): void {
    const { clock, connectionsMax, strangersMax, strangerMs, refused } = this.#options;
    const from = socket.remoteAddress;
    const cancel = clock.after(strangerMs, () => socket.terminate());
    const client: Client = { socket, other: null, unsent: [], otherClosed: false, cancel, from, stranger: true };
    socket.data = client;
    const strangers = [...this.#clients].filter((one) => one.stranger && one.from === from).length;
    const open = this.#clients.size;
    if (strangers >= strangersMax) {
      const why = `${strangers} connections from this address have shown no token; join.strangersMax is ${strangersMax}`;
      refused(from, why);
    } else if (open >= connectionsMax + strangersMax) {
      refused(from, `${open} connections are open, the most allowed (join.connectionsMax + join.strangersMax)`);
    } else {
      this.#clients.add(client);
      return;
    }
    socket.terminate();
  }

  async #open(client: Client, first: Uint8Array): Promise<void> {
    const server: End = { socket: null, other: client, unsent: [first], otherClosed: false, cancel() {} };
    client.other = server;
    const place = { hostname: "127.0.0.1", port: this.#options.serverPort };
    try {
      const opened = this.#handlers((socket) => {
        server.socket = socket;
        this.#byPort.set(socket.localPort, client);
        this.#drain(server);
      });
      await Bun.connect<End>({ ...place, data: server, socket: opened });
    } catch {
      client.socket?.terminate();
    }
  }

  #drain(end: End): void {
    const waiting = end.unsent;
    end.unsent = [];
    for (const bytes of waiting) send(end, bytes);
    if (end.unsent.length > 0) return;
    if (end.otherClosed) end.socket?.end();
    else end.other?.socket?.resume();
  }

  #closed(end: End): void {
    end.cancel();
    if (end.socket !== null) this.#byPort.delete(end.socket.localPort);
    this.#clients.delete(end as Client);
    const { other } = end;
    if (other === null) return;
    other.otherClosed = true;
    if (other.unsent.length === 0) other.socket?.end();
    else other.cancel = this.#options.clock.after(this.#options.strangerMs, () => other.socket?.terminate());
  }

  #handlers(open: (socket: Socket<End>) => void) {
    return {
      open,
      data: (socket: Socket<End>, bytes: Uint8Array) => {
        const { data: end } = socket;
        if (end.other === null) void this.#open(end as Client, bytes.slice());
        else if (!send(end.other, bytes)) socket.pause();
      },
      drain: ({ data }: Socket<End>) => this.#drain(data),
      close: ({ data }: Socket<End>) => this.#closed(data),
      error: (socket: Socket<End>) => socket.terminate(),
    };
  }
}

/** @returns false if the end has not taken all bytes; the rest waits in `unsent` */
function send(end: End, bytes: Uint8Array): boolean {
  const taken = end.unsent.length > 0 ? 0 : Math.max(0, end.socket?.write(bytes) ?? 0);
  if (taken < bytes.byteLength) end.unsent.push(bytes.slice(taken));
  return end.unsent.length === 0;
}
