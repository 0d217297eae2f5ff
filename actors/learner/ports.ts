/** What the learner gets from its machine: disk, trainer thread, and storage for weights. A simulation passes ports of its own. */
import { join } from "node:path";
import type { ActorContext } from "../actor.ts";
import { type Disk, realDisk } from "../checkpoint/disk.ts";
import { saveJson } from "../checkpoint/json.ts";
import type { RunConfig } from "../config/config.ts";
import { learnerEngine, thisMachine } from "../engine/choice.ts";
import type { EngineSettings } from "../engine/start-engine.ts";
import { inThisThread, startThread } from "../process/worker-rpc.ts";
import type { Report } from "../training/report.ts";
import { sweep, weightsFolder, weightsName } from "../weights/files.ts";
import { WeightsPublisher } from "../weights/publisher.ts";
import type { Networks } from "./networks.ts";
import { TicketBook, type TicketBookOptions } from "./tickets.ts";
import type { StartedTrainer, TrainerMethods } from "./trainer.ts";

export interface LearnerPorts {
  readonly disk: Disk;
  startTrainer(config: RunConfig, context: ActorContext, networks: Networks): Promise<StartedTrainer>;
  openWeights(config: RunConfig, context: ActorContext): Pick<WeightsPublisher, "publish" | "file" | "close">;
  openTickets(options: TicketBookOptions): TicketBook;
  saveReport(folder: string, report: Report): void;
  /** The learner calls this function with all metrics that it reports. */
  watchMetrics(step: number, values: Readonly<Record<string, number>>): void;
  /** Maximum numbers of messages, and of rows of episodes, that wait while the metrics sink is not connected. */
  readonly reporterLimits: { readonly waitingMax: number; readonly rowsMax: number };
}

export const realPorts: LearnerPorts = {
  disk: realDisk,
  startTrainer,
  openWeights,
  openTickets: (options) => new TicketBook(options),
  saveReport(folder, report) {
    // Write the whole file or no file, because a report means that the run is finished.
    saveJson(join(folder, "report.json"), report);
  },
  watchMetrics() {},
  reporterLimits: { waitingMax: 10_000, rowsMax: 4096 },
};

/** Starts the trainer at a server (engine tinker), in this thread (host one-thread) or in a new thread. Imports only what this thread runs. */
async function startTrainer(
  config: RunConfig,
  { host, fail, log, clock }: ActorContext,
  { model, policy, critic, frozen, served }: Networks,
): Promise<StartedTrainer> {
  if (config.engine.name === "tinker") {
    const { startTinkerTrainer } = await import("../tinker/trainer.ts");
    const saved = served === null ? null : { steps: policy.step, served };
    return startTinkerTrainer(config, saved, { clock, fetch, warn: (text) => log.warning("server", text) });
  }
  const thread =
    host === "one-thread"
      ? inThisThread((await import("./trainer.ts")).trainerMethods())
      : startThread<TrainerMethods>(new URL("./trainer-worker.ts", import.meta.url), fail);
  const chosen = learnerEngine(config, learnerThreads(config), thisMachine);
  if (chosen.reason !== null) log.warning("engine", chosen.reason);
  // A critic that shares the policy's body is one network with both heads.
  const networks =
    critic?.model.head === "both"
      ? { model: critic.model, policy: critic.memory, critic: null }
      : { model, policy, critic };
  const engine = await thread.methods.start({
    engine: chosen.engine,
    optimizer: config.learner.optimizer,
    frozen,
    ...networks,
  });
  return { ...thread, engine, onGpu: isGpu(chosen.engine) };
}

const isGpu = (engine: EngineSettings) =>
  "device" in engine && (engine.device === "cuda" || engine.device === "webgpu");

/** In sync mode samplers and learner take turns, so the learner may use every core. In async mode it uses the cores that the samplers leave. */
function learnerThreads({ engine, learner: { mode }, sampler }: RunConfig): number {
  if (engine.threads > 0) return engine.threads;
  const cores = navigator.hardwareConcurrency;
  return Math.max(1, mode === "sync" ? cores : cores - sampler.count * sampler.threads);
}

/** Opens the publisher of weights. First deletes the files in shared memory that an ended run or an earlier learner of this run left. */
function openWeights({ sampler }: RunConfig, { run, folder, host, log }: ActorContext): WeightsPublisher {
  const notice = (text: string) => log.warning("shared-memory", text);
  const shared = weightsFolder(folder, notice);
  const name = weightsName(run, folder);
  for (const left of sweep(shared, name)) log.info("sweep", `removed ${left}, which an ended process left`);
  return new WeightsPublisher({
    folder: shared,
    spareFolder: folder,
    run: name,
    // Only an actor in its own process uses files without a name. After a worker has died, such a file would stay until the whole process ends.
    nameless: host === "process",
    half: sampler.precision === "half",
    notice,
  });
}
