/** Sections `engine`, `metrics`, `supervisor`, `join` and `transport`: where and how a run computes. Types and defaults only. */
import { z } from "zod";
import { LEVELS } from "../log.ts";
import { fitsHeader } from "../transport/address.ts";
import { flag, httpUrl, nonnegativeInt, nullableText, oneOf, positiveInt, text } from "./kinds.ts";

const Token = z
  .string()
  .min(16)
  .refine(fitsHeader, "takes letters, digits and signs of ASCII in one line, because HTTP sends it")
  .nullable()
  .default(null);

export const EngineConfig = z.strictObject({
  name: oneOf(["auto", "compiled", "tensorflow", "eager", "tinker"], "auto").describe(
    "auto: the run chooses compiled or tensorflow; compiled: onnxruntime; tensorflow: libtensorflow; eager: tfjs in JavaScript, slow, for checks; tinker: a server at engine.url trains and samples (docs/models.md)",
  ),
  url: httpUrl(null).describe(
    "Address of the server of engine.name tinker, or of sampler.engine vllm or sglang, such as http://127.0.0.1:8801",
  ),
  deadlineMs: positiveInt(900_000).describe(
    "Time from a request at engine.url to its result, retries included; the server may compile new shapes for minutes",
  ),
  device: oneOf(["auto", "cpu", "cuda", "webgpu"], "auto").describe(
    "auto: with engine.name auto the learner uses an NVIDIA GPU if it can, else the CPU; with engine.name compiled it uses the CPU. If a device that you name is missing, the run does not start",
  ),
  softwareAdapter: flag(false).describe(
    "Allows webgpu on a software driver such as llvmpipe: slower than the CPU, for checks",
  ),
  tf32: flag(false).describe(
    "true: engine compiled on cuda rounds the factors of products to 10 bits of mantissa (NVIDIA's TF32). A step of a 0.5B model then takes half the time, and losses differ by about 1e-4",
  ),
  bfloat16Products: oneOf(["none", "gradients", "all"], "none").describe(
    "On a CPU with AVX-512 and avx512_bf16, engine compiled rounds the factors of products to 8 bits of mantissa. gradients: in gradients and in the optimizer Muon, so log-probabilities and losses keep full precision. all: also in the forward pass of learner and samplers. With rounding an AMD EPYC computes faster, and an Intel Xeon without AMX computes more slowly. With several threads, a run refuses this option if the model has more than 128 MiB of parameters",
  ),
  threads: nonnegativeInt(0).describe(
    "Threads of the learner's engine; 0: in sync mode all cores, in async mode the number of cores minus the threads of all local samplers, at least 1",
  ),
});

export const MetricsConfig = z.strictObject({
  host: text("127.0.0.1").describe("Address of the page; an address other than loopback needs metrics.token"),
  port: z.int().min(0).max(65_535).default(7001).describe("Port of the page; 0: any free port"),
  token: Token.describe("Secret that the page asks for, at least 16 characters; null: no secret"),
  tensorboard: flag(false).describe("Also writes TensorBoard event files into RUN/tensorboard/"),
});

export const SupervisorConfig = z.strictObject({
  heartbeatDeadlineMs: z
    .int()
    .min(1000)
    .default(10_000)
    .describe(
      "The supervisor replaces an actor that sends no heartbeat for this time; each actor sends 20 heartbeats in this time",
    ),
  progressDeadlineMs: positiveInt(1_800_000).describe(
    "The supervisor replaces an actor whose computation gives no result for this time; an update must take less time",
  ),
  restartsMax: nonnegativeInt(5).describe(
    "The run ends if an actor fails more than this many times within 60 s, or more than this many times in a row at its start. It also ends if the learner fails more than this many times in a row at one update",
  ),
  stopGraceMs: positiveInt(10_000).describe(
    "Time for an actor to stop before it gets SIGTERM; raise this time if an update takes longer",
  ),
  logLevel: oneOf(LEVELS, "info").describe("Lowest level of log lines that actors write"),
});

/** Time between two heartbeats of an actor: 500 ms by default. */
export const heartbeatMs = ({ heartbeatDeadlineMs }: z.infer<typeof SupervisorConfig>): number =>
  heartbeatDeadlineMs / 20;

export const JoinConfig = z.strictObject({
  listen: nullableText("ws://127.0.0.1:0").describe(
    "Address where other machines join: ws:// or, with TLS, wss://; port 0: any free port; null: no machine can join",
  ),
  token: Token.describe(
    "Secret for lending samplers and env servers. null: no secret; but if join.samplerToken and join.envServerToken are also null, and join.listen is on loopback, the run makes this secret",
  ),
  samplerToken: Token.describe("Secret for lending samplers only; null: no secret"),
  envServerToken: Token.describe("Secret for lending env servers only; null: no secret"),
  certFile: text(null).describe("PEM file with the certificate of join.listen; needed for wss://"),
  keyFile: text(null).describe("PEM file with the private key of join.certFile; needed for wss://"),
  clientCaFile: text(null).describe(
    "PEM file of the authority that signed the certificates of guests (other machines); null: guests need no certificate",
  ),
  connectionsMax: positiveInt(8192).describe(
    "Maximum number of connections from other machines; the gate refuses further connections",
  ),
  strangersMax: positiveInt(256).describe(
    "Maximum number of connections from one address that have shown no token yet; the gate closes further connections at once",
  ),
  strangerMs: positiveInt(10_000).describe(
    "Time for a connection to show a token; after this time the gate closes the connection",
  ),
});

export const TransportConfig = z.strictObject({
  listen: text("ws://127.0.0.1:0").describe(
    "Address where actors connect to each other: ws:// on loopback, or a NATS broker's address (nats://HOST:PORT; with TLS tls://HOST:PORT)",
  ),
  token: Token.describe("Secret with which actors connect to each other and to the broker; null: the run makes one"),
});
