/** Where and how it runs: engine, metrics, supervisor, joining, transport. Shapes and defaults only. */
import { z } from "zod";
import { LEVELS } from "../log.ts";

const Token = z.string().min(16).nullable().default(null);

export const EngineConfig = z.strictObject({
  name: z
    .enum(["auto", "compiled", "tensorflow", "eager"])
    .default("auto")
    .describe(
      "compiled: traced to onnxruntime; tensorflow: libtensorflow; eager: tfjs in JavaScript, slow, for checks",
    ),
  device: z
    .enum(["auto", "cpu", "cuda", "webgpu"])
    .default("auto")
    .describe("One that was asked for is never replaced"),
  softwareAdapter: z
    .boolean()
    .default(false)
    .describe("webgpu may compute on a driver that is software, as llvmpipe: slower than the CPU, for checks"),
  threads: z.int().nonnegative().default(0).describe("Of the learner; 0: the cores that the samplers leave free"),
});

export const MetricsConfig = z.strictObject({
  host: z.string().min(1).default("127.0.0.1").describe("Where the page listens; another than loopback needs a token"),
  port: z.int().min(0).max(65_535).default(7001).describe("0: any free port"),
  token: Token.describe("Secret that the page asks for; at least 16 letters"),
  tensorboard: z
    .boolean()
    .default(false)
    .describe("Also write TensorBoard event files, as metrics come, into the run folder's tensorboard/"),
});

export const SupervisorConfig = z.strictObject({
  heartbeatMs: z.int().positive().default(500).describe("Time between an actor's signs of life"),
  heartbeatDeadlineMs: z.int().positive().default(10_000).describe("An actor silent for so long is replaced"),
  progressDeadlineMs: z
    .int()
    .positive()
    .default(1_800_000)
    .describe("An actor whose computation gives no result for so long is replaced; longer than the longest update"),
  startDeadlineMs: z.int().positive().default(60_000).describe("Time from an actor's start to its first sign of life"),
  restartsMax: z
    .int()
    .nonnegative()
    .default(5)
    .describe("Restarts of one actor within the window, or in a row before it works; then the run ends"),
  restartWindowMs: z.int().positive().default(30_000).describe("The window"),
  stopGraceMs: z.int().positive().default(10_000).describe("Time to leave before an actor gets SIGTERM"),
  killGraceMs: z.int().positive().default(2000).describe("Time after SIGTERM before it gets SIGKILL"),
  logLevel: z.enum(LEVELS).default("info").describe("Of the actors' logs"),
});

const File = z.string().min(1).nullable().default(null);

export const JoinConfig = z.strictObject({
  listen: z
    .string()
    .min(1)
    .nullable()
    .default("ws://127.0.0.1:0")
    .describe("Where others join, ws:// or wss:// (TLS); port 0: any free one; null: nowhere"),
  token: Token.describe("Secret of whoever lends samplers or env servers; null: on loopback one is made for the run"),
  samplerToken: Token.describe("Secret with which only samplers can be lent"),
  envServerToken: Token.describe("Secret with which only env servers can be lent"),
  certFile: File.describe("Certificate of the gate in PEM format, for wss://"),
  keyFile: File.describe("Its private key"),
  clientCaFile: File.describe("Authority whose certificate others must show too (mutual TLS); null: none"),
  connectionsMax: z.int().positive().default(8192).describe("Connections of others; the next is refused"),
});

export const TransportConfig = z.strictObject({
  listen: z
    .string()
    .min(1)
    .default("ws://127.0.0.1:0")
    .describe("Where actors meet: ws:// on loopback, or nats://HOST:PORT of a broker, tls:// if it must speak TLS"),
  token: Token.describe("Shared secret of the actors, and what a broker asks for; null: one is made for the run"),
  frameBytesMax: z
    .int()
    .positive()
    .default(64 * 2 ** 20)
    .describe("A larger message closes its connection"),
  queuedBytesMax: z
    .int()
    .positive()
    .default(256 * 2 ** 20)
    .describe("Unsent bytes at which a peer is given up"),
  askDeadlineMs: z.int().positive().default(30_000).describe("Time for an answer; after it the ask has failed"),
});
