/**
 * One process's connection to a NATS broker: the process's inbox and the two streams. To this file a parcel (wire.ts) is only bytes.
 *
 *   bunraku.dial.NAME         requests to connect to NAME; one of the listeners of that name (a NATS queue group) answers
 *   bunraku.to.INBOX.END      parcels for one end of a connection; each process has one inbox
 *   bunraku.work.INBOX.END    parcels for the same end; the broker keeps them until the receiver acknowledges them (stream bunraku_work)
 *   bunraku.quarantine.INBOX  parcels that no receiver acknowledged in DELIVERIES_MAX deliveries (stream bunraku_quarantine)
 *
 * - A full work stream refuses new parcels, and the sender tries again. A full quarantine stream drops its oldest parcels.
 * - When the connection to the broker is lost, every connection through the broker ends. The process tries to reconnect without limit.
 */
import {
  AckPolicy,
  type ConsumerMessages,
  DiscardPolicy,
  type JetStreamClient,
  type JetStreamManager,
  type JsMsg,
  jetstream,
  jetstreamManager,
  RetentionPolicy,
  type StreamConfig,
} from "@nats-io/jetstream";
import {
  AuthorizationError,
  connect,
  headers,
  type Msg,
  type NatsConnection,
  nanos,
  type TlsOptions,
} from "@nats-io/transport-node";
import { pause, settlesIn } from "../../clock.ts";
import { describeError } from "../../errors.ts";
import type { SocketOptions } from "../socket-wire.ts";
import { TOKEN_REFUSED, TokenRefused } from "../transport.ts";
import type { Stored } from "./wire.ts";

export const WORK = "bunraku_work";
export const QUARANTINE = "bunraku_quarantine";
export const DELIVERIES_MAX = 5;

/** Maximum number of bytes in the work stream. A parcel that the full stream refuses waits in the sampler's process. */
const WORK_BYTES_MAX = 256 * 2 ** 20;
const QUARANTINE_BYTES_MAX = 64 * 2 ** 20;
/** The broker drops older parcels. The deadlines of their asks have passed long before. */
const WORK_AGE_MS_MAX = 3_600_000;
const DUPLICATES_MS = 120_000;
const ACK_MS = 30_000;
/** The broker deletes a reader (a NATS consumer) this long after the reader's process has died. */
const READER_GONE_MS = 60_000;
const API_MS_MAX = 5000;
/** When a process leaves, the broker has this much time to take the parcels already sent. */
const CLOSE_MS_MAX = 500;
const RETRY_MS = { first: 20, max: 1000 };
/** This end reports a refused parcel only after this many refusals, which take about 5 s. A full stream usually has room again earlier. */
const REFUSALS_QUIET = 10;
const ASK_HEADER = "Bunraku-Ask";

export interface BrokerOptions extends Pick<SocketOptions, "clock" | "token" | "tls" | "report"> {
  readonly silenceMsMax: number;
  readonly connectMsMax: number;
}

export interface ConnectionEnd {
  take(parcel: Uint8Array, stored: Stored | null): void;
  lose(reason: string): void;
}

export class Broker {
  /** The unique name of this process at this broker. */
  readonly inbox: string = crypto.randomUUID();
  readonly ends = new Map<string, ConnectionEnd>();
  readonly connection: NatsConnection;
  readonly #options: BrokerOptions;
  readonly #js: JetStreamClient;
  readonly #manager: JetStreamManager;
  #connected = true;
  /** True if this process is connected to the broker and the broker has both streams. */
  #ready = true;
  #listeners = 0;
  #reading: ConsumerMessages | null = null;
  /** For each receiving end, resolves when its last parcel is in the work stream or no longer needed. */
  readonly #storing = new Map<string, Promise<void>>();

  private constructor(connection: NatsConnection, manager: JetStreamManager, options: BrokerOptions) {
    this.connection = connection;
    this.#options = options;
    this.#manager = manager;
    this.#js = jetstream(connection, { timeout: API_MS_MAX });
    connection.subscribe(`bunraku.to.${this.inbox}.*`, {
      callback: (error, msg) => {
        if (error === null) this.ends.get(endOf(msg))?.take(msg.data, null);
      },
    });
    void this.#watch();
  }

  /** @throws {Error} with the reason, such as "nothing answers there"; `TokenRefused` if the broker refuses the token */
  static async connect(url: URL, options: BrokerOptions): Promise<Broker> {
    const { token, tls, silenceMsMax, connectMsMax } = options;
    let connection: NatsConnection;
    try {
      connection = await connect({
        servers: url.host,
        ...(token === "" ? {} : { token }),
        // tls:// requires TLS; nats:// uses TLS if the broker offers it.
        ...(url.protocol === "tls:" ? { tls: (tls ?? {}) as TlsOptions } : {}),
        timeout: connectMsMax,
        maxReconnectAttempts: -1,
        reconnectTimeWait: 100,
        ignoreAuthErrorAbort: true,
        ignoreClusterUpdates: true,
        pingInterval: silenceMsMax / 4,
        maxPingOut: 3,
      });
    } catch (error) {
      if (error instanceof AuthorizationError) throw new TokenRefused(TOKEN_REFUSED, { cause: error });
      throw new Error(reasonOf(error), { cause: error });
    }
    try {
      const manager = await jetstreamManager(connection, { timeout: API_MS_MAX });
      await makeStreams(manager);
      return new Broker(connection, manager, options);
    } catch (error) {
      await connection.close();
      throw new Error(`the broker keeps no streams (start it with --jetstream): ${describeError(error)}`);
    }
  }

  get ready(): boolean {
    return this.#ready && !this.connection.isClosed();
  }

  get unused(): boolean {
    return this.#listeners === 0 && this.ends.size === 0;
  }

  get parcelBytesMax(): number {
    // The broker's limit includes a parcel's NATS headers: 512 bytes are for them.
    return (this.connection.info?.max_payload ?? 2 ** 20) - 512;
  }

  /** Calls `answer` with each request to connect to `name`. @returns a function that stops answering. @throws {Error} of the broker */
  async answerDials(name: string, answer: (dial: Msg) => void): Promise<() => Promise<void>> {
    this.#listeners++;
    try {
      if (this.#listeners === 1) await this.#read();
    } catch (error) {
      this.#listeners--;
      throw error;
    }
    const dials = this.connection.subscribe(`bunraku.dial.${name}`, {
      queue: "bunraku",
      callback: (error, msg) => {
        if (error === null) answer(msg);
      },
    });
    await this.connection.flush();
    return async () => {
      if (--this.#listeners === 0) this.#stopReading();
      // Requests that the broker has already delivered to this process still get an answer.
      if (this.ready) await settlesIn(this.#options.clock, CLOSE_MS_MAX, dials.drain());
      else dials.unsubscribe();
    };
  }

  publish(to: string, parcel: Uint8Array): void {
    // The loss of the broker ends every connection. So no connection continues after this function has dropped one of its parcels.
    if (this.#connected && !this.connection.isClosed()) this.connection.publish(`bunraku.to.${to}`, parcel);
  }

  /**
   * Puts a parcel into the work stream: tries until the broker takes the parcel or `over` returns true. The broker stores a parcel once, even
   * if the parcel arrives twice. Parcels for one end go in one after another. Otherwise later parcels could fill the stream and leave no room
   * for an earlier one.
   */
  store(to: string, parcel: Uint8Array, number: number, ask: number, over: () => boolean): void {
    const askHeaders = headers();
    askHeaders.set(ASK_HEADER, String(ask));
    const options = { msgID: `${to}.${number}`, headers: askHeaders };
    const stored = (this.#storing.get(to) ?? Promise.resolve()).then(async () => {
      for (let failures = 0; !over(); failures++) {
        const publishing = this.#js.publish(`bunraku.work.${to}`, parcel, options);
        const refusal = await publishing.then(() => null, describeError);
        if (refusal === null) return;
        if (failures === REFUSALS_QUIET) {
          const detail = `${WORK} takes no finished episode: ${refusal}; the episode waits in this process and is sent again. Make room in the stream and on the broker's disk.`;
          this.#report("refused", detail);
        }
        await pause(this.#options.clock, Math.min(RETRY_MS.max, RETRY_MS.first * 2 ** failures));
      }
    });
    this.#storing.set(to, stored);
    void stored.then(() => {
      if (this.#storing.get(to) === stored) this.#storing.delete(to);
    });
  }

  async close(): Promise<void> {
    if (this.connection.isClosed()) return;
    // Lets the last parcels reach the broker, if it is connected.
    if (this.ready) await settlesIn(this.#options.clock, CLOSE_MS_MAX, this.connection.flush());
    this.#connected = false;
    this.#ready = false;
    this.#stopReading();
    await this.connection.close();
  }

  async #watch(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type === "disconnect") {
        this.#connected = false;
        this.#ready = false;
        for (const end of [...this.ends.values()]) end.lose("the broker was lost");
      }
      if (type === "reconnect") {
        this.#connected = true;
        void this.#reconnected();
      }
    }
  }

  /** Makes missing streams and starts to read again: the broker may be a new one with an empty disk. */
  async #reconnected(): Promise<void> {
    try {
      await makeStreams(this.#manager);
      if (this.#listeners > 0) await this.#read();
      this.#ready = this.#connected;
    } catch (error) {
      this.#report("refused", `the broker is back, but its streams cannot be used: ${describeError(error)}`);
      this.#options.clock.after(RETRY_MS.max, () => {
        if (this.#connected && !this.ready) void this.#reconnected();
      });
    }
  }

  async #read(): Promise<void> {
    this.#stopReading();
    await this.#manager.consumers.add(WORK, {
      durable_name: this.inbox,
      filter_subject: `bunraku.work.${this.inbox}.*`,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(ACK_MS),
      inactive_threshold: nanos(READER_GONE_MS),
    });
    const consumer = await this.#js.consumers.get(WORK, this.inbox);
    const callback = (msg: JsMsg) => this.#deliver(msg);
    const reading = await consumer.consume({ abort_on_missing_resource: true, callback });
    this.#reading = reading;
    // `closed` resolves with an error after the broker has deleted the reader: its process was suspended for long, or its stream was deleted.
    void reading.closed().then((error) => {
      if (!(error instanceof Error)) return;
      this.#options.clock.after(RETRY_MS.max, () => {
        if (this.#reading === reading && this.#connected) void this.#reconnected();
      });
    });
  }

  #stopReading(): void {
    this.#reading?.stop();
    this.#reading = null;
  }

  #deliver(msg: JsMsg): void {
    const ask = Number(msg.headers?.get(ASK_HEADER));
    const end = this.ends.get(endOf(msg));
    if (msg.info.deliveryCount > DELIVERIES_MAX) {
      void this.#quarantine(msg);
      return;
    }
    const stored = { ask, ack: () => msg.ack(), giveBack: () => msg.nak() };
    if (end === undefined) stored.giveBack();
    else end.take(msg.data, stored);
  }

  async #quarantine(msg: JsMsg): Promise<void> {
    const detail = `no actor answered a stored message in ${DELIVERIES_MAX} deliveries; the message is now in ${QUARANTINE}`;
    try {
      const fromHeaders = headers();
      fromHeaders.set("Bunraku-From", msg.subject);
      await this.#js.publish(`bunraku.quarantine.${this.inbox}`, msg.data, {
        msgID: `${msg.info.stream}.${msg.info.streamSequence}`,
        headers: fromHeaders,
      });
      msg.term();
      this.#report("quarantined", detail);
    } catch (error) {
      // The work stream keeps the parcel and delivers it again.
      msg.nak(RETRY_MS.max);
      this.#report("quarantined", `${QUARANTINE} did not take a message: ${describeError(error)}`);
    }
  }

  #report(kind: "quarantined" | "refused", detail: string): void {
    this.#options.report?.({ kind, peer: this.connection.getServer(), detail });
  }
}

const endOf = ({ subject }: { readonly subject: string }): string => subject.slice(subject.lastIndexOf(".") + 1);

/** Makes the missing streams. Existing streams keep their settings. */
async function makeStreams(manager: JetStreamManager): Promise<void> {
  const work: Partial<StreamConfig> & { name: string } = {
    name: WORK,
    subjects: ["bunraku.work.>"],
    retention: RetentionPolicy.Workqueue,
    discard: DiscardPolicy.New,
    max_bytes: WORK_BYTES_MAX,
    max_age: nanos(WORK_AGE_MS_MAX),
    duplicate_window: nanos(DUPLICATES_MS),
  };
  const quarantine: Partial<StreamConfig> & { name: string } = {
    name: QUARANTINE,
    subjects: ["bunraku.quarantine.>"],
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old,
    max_bytes: QUARANTINE_BYTES_MAX,
  };
  const known = new Set(await Array.fromAsync(manager.streams.names()));
  for (const stream of [work, quarantine]) {
    if (!known.has(stream.name)) await manager.streams.add(stream);
  }
}

function reasonOf(error: unknown): string {
  const text = describeError(error);
  if (/certificate|TLS|SSL/i.test(text)) return `the TLS handshake failed: ${text}`;
  return "nothing answers there";
}
