/**
 * The trainer of engine tinker: the methods of learner/trainer.ts for a policy that a server keeps. The learner computes losses, advantages,
 * filters and metrics. The server runs forward, backward and AdamW, and keeps the saved parameters.
 *
 * - Heartbeats keep a session alive, and the server keeps a model as long as the model's session. After a restart of the server, or without
 *   heartbeats, requests for the model fail. Then the learner ends. The next learner makes a new model, and loads the state that the newest
 *   checkpoint names.
 * - skyrl-tx keeps one set of weights per model, and samples every version from that set. In async mode samplers still play an older
 *   version after the learner has published a newer version. So the trainer makes `stalenessMax + 1` more models, which hold the versions in
 *   turn. The trainer overwrites a version only when the version's episodes are too stale to train on.
 * - The trainer uses every name at the server once, so a save never meets a checkpoint of an earlier save under the same name.
 */
import { z } from "zod";
import { crossScores } from "../../model/health/cross-score.ts";
import { evenWeights, imitation } from "../../model/learn/objective.ts";
import { update } from "../../model/learn/update/update.ts";
import { settlesIn } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { StartedTrainer } from "../learner/trainer.ts";
import { inOrder } from "../process/worker-rpc.ts";
import { type ModelServer, openServer, type ServerPorts, servedVersion } from "./server.ts";
import { TrainedModel } from "./trained-model.ts";

const HEARTBEAT_MS = 10_000;
/** When the learner stops, it waits at most this long for the server to unload the models. */
const UNLOAD_MS = 2000;

const Capabilities = z.object({ supported_models: z.array(z.object({ model_name: z.string() })) });
const Session = z.object({ session_id: z.string() });
const Created = z.object({ model_id: z.string() });
const Saved = z.object({ path: z.string() });
const Done = z.object({});

/** @param saved  the newest checkpoint's optimizer steps and the name of its state at the server; null for a new run */
export async function startTinkerTrainer(
  config: RunConfig,
  saved: { readonly steps: number; readonly served: string } | null,
  ports: ServerPorts,
): Promise<StartedTrainer> {
  const server = openServer(config, ports);
  const base = await servedModel(server, config.model.path!, ports.warn);
  const session = await server.ask(
    "create_session",
    { tags: [], user_metadata: {}, sdk_version: "0", type: "create_session" },
    Session,
  );
  let steps = saved?.steps ?? 0;
  let saveCount = 0;
  let cancelBeat = () => {};
  const made: TrainedModel[] = [];
  const create = async () => {
    const one = await createModel(server, session.session_id, base, config);
    made.push(one);
    return one;
  };
  const model = await create();
  const { mode, stalenessMax } = config.learner;
  const versionModels = await Promise.all(Array.from({ length: mode === "async" ? stalenessMax + 1 : 0 }, create));
  /** For KL terms: the base model, with adapters that are never trained. */
  let reference: TrainedModel | null = null;
  const beat = () => {
    const body = { session_id: session.session_id, type: "session_heartbeat" };
    // A failed heartbeat is only a warning: if the session has ended, the next request for a model fails.
    void server.ask("session_heartbeat", body, Done).catch(({ message }: Error) => ports.warn(message));
    cancelBeat = ports.clock.after(HEARTBEAT_MS, beat);
  };
  beat();
  const stop = async () => {
    cancelBeat();
    // Otherwise a model occupies one of the server's places until its session ends.
    const unloaded = made.map(({ id }) => server.ask("unload_model", { model_id: id }, Done));
    await settlesIn(ports.clock, UNLOAD_MS, Promise.all(unloaded));
    server.close();
  };
  const load = (path: string, into = model) =>
    server.result("load_weights", { model_id: into.id, path, type: "load_weights" }, Done, true);
  /** @returns the name of the saved weights at the server */
  const save = async (how: "save_weights" | "save_weights_for_sampler", name: string, from = model) => {
    const body = { model_id: from.id, path: `${name}-${saveCount++}`, type: how };
    // Not repeatable: the server would refuse a second save under this name.
    return (await server.result(how, body, Saved, false)).path;
  };
  /** @returns the name at the server under which samplers find the current policy */
  const publish = async (version: number) => {
    if (versionModels.length === 0) return save("save_weights_for_sampler", `v${version}`);
    const holder = versionModels[version % versionModels.length]!;
    await load(await save("save_weights", `s${version}`), holder);
    return save("save_weights_for_sampler", `v${version}`, holder);
  };
  if (saved !== null)
    await load(saved.served).catch(async (error: unknown) => {
      await stop();
      throw error;
    });
  const unused = () =>
    Promise.reject(new Error("engine tinker has no such method; the config should have been refused"));
  return {
    engine: `tinker, ${server.url}, ${base}`,
    workingMs: () => 0,
    stop,
    publish: async (version) => servedVersion(version, await publish(version)),
    methods: {
      start: unused,
      async keepReference() {
        reference ??= await create();
      },
      analyzeGradients: unused,
      async resetOptimizer() {
        if (steps > 0) await model.resetOptimizer();
        steps = 0;
      },
      imitate: inOrder(async (demos, _limits, optimizer) => {
        const { loss } = await model.accumulate(imitation, demos, { weights: evenWeights(demos) });
        await model.step(optimizer);
        steps++;
        return loss!;
      }),
      async update(played, settings) {
        const result = await update({ policy: model, critic: null, reference }, played, settings);
        steps += result.steps;
        return result;
      },
      crossScore: (turns, limits, temperature) => crossScores(model, turns, limits, temperature),
      async resumeFrom({ policy, served }) {
        await load(served!);
        steps = policy;
      },
      prepareCheckpoint: async () => ({ policy: steps, critic: null, served: await save("save_weights", `u${steps}`) }),
    },
  };
}

/** The server's name of the run's model, or the name of the server's only model. @throws {RunError} that names all models of the server */
async function servedModel(server: ModelServer, path: string, warn: (text: string) => void): Promise<string> {
  const { supported_models } = await server.ask("get_server_capabilities", null, Capabilities);
  const names = supported_models.map(({ model_name }) => model_name);
  // The path of a model of the Hub is …/models--OWNER--NAME/snapshots/REVISION.
  const own = names.find((name) => name === path || path.includes(`/models--${name.replaceAll("/", "--")}/`));
  if (own !== undefined) return own;
  if (names.length === 1) {
    warn(
      `the server at ${server.url} has only the model ${names[0]}, and model.path is ${path}: the run trains ${names[0]}`,
    );
    return names[0]!;
  }
  throw new RunError(
    `the server at ${server.url} has the models ${names.join(", ") || "(none)"}, and model.path is ${path}; set model.path to one of them`,
  );
}

async function createModel(server: ModelServer, session_id: string, base_model: string, { model, seed }: RunConfig) {
  const lora_config = { rank: model.lora.rank, seed: seed % 2 ** 31 };
  const body = { session_id, model_seq_id: 0, base_model, lora_config, type: "create_model" };
  const { model_id } = await server.result("create_model", body, Created, true);
  return new TrainedModel(server, model_id);
}
