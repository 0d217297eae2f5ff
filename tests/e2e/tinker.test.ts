/**
 * Engine tinker with the real skyrl-tx and a tiny random Qwen3, on this machine's CPU: its numbers are those of our engine, and an agent
 * learns Bandit, though the server is killed and the run is stopped and resumed. The test runs where `bun run setup tinker` was run, or
 * BUNRAKU_TINKER names the folder of that setup.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { realClock } from "../../actors/clock.ts";
import { loadPretrained, readPretrained } from "../../actors/policy/pretrained.ts";
import { ModelServer } from "../../actors/tinker/server.ts";
import { TrainedModel } from "../../actors/tinker/trained-model.ts";
import { compiledEngine } from "../../model/engine/compiled.ts";
import type { Sequence } from "../../model/learn/batch.ts";
import { Network } from "../../model/learn/network.ts";
import { imitation } from "../../model/learn/objective.ts";
import { layParameters } from "../../model/policy/parameters.ts";
import { sequence } from "../../model/rng.ts";
import { startTinkerServer, tinkerPlaces } from "../../scripts/setup/tinker.ts";
import { ms } from "../figure.ts";
import { farthest } from "../model/farthest.ts";
import { describeWhere } from "../needs.ts";
import { expectSuccess, root } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { RunProcess } from "./run-process.ts";

const installed = process.env["BUNRAKU_TINKER"] ?? join(root, "node_modules", ".bunraku", "tinker");
const lack = existsSync(join(installed, "installed")) ? null : "skyrl-tx is not installed: bun run setup tinker";
/** The server compiles its functions at first. */
const LONG = 1_200_000;
setDefaultTimeout(LONG);

describeWhere(lack, "skyrl-tx", () => {
  const places = { ...tinkerPlaces(installed), folder: temporaryFolder() };
  let port: number;
  let server: Awaited<ReturnType<typeof startTinkerServer>>;
  beforeAll(async () => {
    const free = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
    port = free.port!;
    await free.stop(true);
    server = await startTinkerServer(places, port);
  });
  afterAll(() => server.kill("SIGKILL"));

  test("log-probabilities and loss of a fresh adapter equal our compiled engine's within 1e-3", async () => {
    const client = new ModelServer({
      root: "/api/v1/",
      url: server.url,
      deadlineMs: LONG,
      fetch,
      clock: realClock,
      warn() {},
    });
    const begin = { tags: [], user_metadata: {}, sdk_version: "0", type: "create_session" };
    const { session_id } = await client.ask("create_session", begin, z.object({ session_id: z.string() }));
    const make = { session_id, base_model: places.model, lora_config: { rank: 8, seed: 1 } };
    const { model_id } = await client.result("create_model", make, z.object({ model_id: z.string() }), true);
    const theirs = new TrainedModel(client, model_id);

    const { model } = readPretrained(places.model);
    const parameters = layParameters(model);
    await loadPretrained(places.model, model, parameters);
    const ours = await Network.create(compiledEngine({ threads: 1 }), model, parameters);

    const uniform = sequence(7, "tokens");
    const sequences = [30, 17, 5].map((length): Sequence => {
      const tokens = Int32Array.from({ length }, () => Math.floor(uniform() * model.vocabulary));
      return { tokens, written: Int32Array.from({ length: length - 3 }, (_, i) => i + 3) };
    });
    const limits = { tokensMax: 128, lengthMultiple: 16, widthMultiple: 16 };
    const [there, here] = [await theirs.score(sequences), await ours.score(sequences, limits)];
    const gap = Math.max(...here.logProbs.map((row, i) => farthest(row, there.logProbs[i]!)));
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(1 / 43));
    const theirLoss = (await theirs.accumulate(imitation, sequences, { weights }))["loss"]!;
    const ourLoss = (await ours.accumulate(imitation, sequences, { weights }, limits))["loss"]!;
    console.log(
      `skyrl-tx and the compiled engine: log-probabilities ${gap}, loss ${Math.abs(theirLoss - ourLoss)} apart`,
    );
    expect(gap).toBeLessThan(1e-3);
    expect(Math.abs(theirLoss - ourLoss)).toBeLessThan(1e-3);
    expect(ourLoss).toBeGreaterThan(1);
    await client.ask("unload_model", { model_id }, z.unknown());
    client.close();
  });

  test("an agent learns Bandit to above .9, through a killed server and a resumed run", async () => {
    const folder = join(places.folder, "run");
    const common = ["--port", "0", "--exit", "--quiet"];
    const args = ["--preset", "tinker-bandit", `--engine.url=${server.url}`, "--model", places.model];
    const run = new RunProcess(folder, [...args, "--run-dir", folder, ...common]);
    await run.updated(6);
    const again = run.next(({ kind }) => kind === "update");
    server.kill("SIGKILL");
    server = await startTinkerServer(places, port);
    const [next] = (await again) as [number];
    console.log(`skyrl-tx killed and started again: next update after ${ms(next)}`);
    await run.updated(8);
    run.kill("SIGINT");
    expect((await run.ended).code).toBe(0);

    const resumed = new RunProcess(folder, ["--resume", folder, "--exit", "--quiet"]);
    expectSuccess(await resumed.ended);
    const { success, minutesInAll } = JSON.parse(readFileSync(join(folder, "report.json"), "utf8"));
    console.log(`Bandit by skyrl-tx: ${success.before} to ${success.after}; ${minutesInAll} minutes after the resume`);
    expect(success.after).toBeGreaterThan(0.9);
    expect(success.before).toBeLessThan(0.75);
  });
});
