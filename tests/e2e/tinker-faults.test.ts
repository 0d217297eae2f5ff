/** Rows of the table of faults about the server of engine tinker: real processes of a run, and a server whose policy is a table of bigrams. */
import { afterAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { writeTinyModel } from "../../scripts/setup/tiny-model.ts";
import { BigramServer } from "../actors/tinker/bigram-server.ts";
import { figure, ms } from "../figure.ts";
import { commandHere, expectSuccess } from "../scripts/command.ts";
import { exited, LONG, RunProcess, Runs, timeIndependentMetrics, updated } from "./run-process.ts";

const server = new BigramServer(new Tokenizer().size);
const runs = new Runs("own");
afterAll(() => server.stop());

test(
  "the server loses its models, then the learner is killed: training gives the same result",
  async () => {
    const path = join(runs.folder, "model");
    await writeTinyModel(path);
    const changed = {
      env: { tag: "Bandit", options: {}, turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
      engine: { name: "tinker", url: server.url },
      // Left out: the folder sets its shape.
      model: { path, width: undefined, layers: undefined, heads: undefined, kvHeads: undefined, hidden: undefined },
      sampler: { slots: 32 },
      warmStart: { stages: [{ name: "form", babble: 1, steps: 10, learningRate: 1, warmUpSteps: 0, batch: 16 }] },
      learner: { algorithm: "rloo", updates: 8, learningRate: 0.3, filter: { strategy: "all", value: undefined } },
    };
    const fresh = () => {
      const { folder, args } = runs.fresh(changed);
      return { folder, args: ["--preset", "tinker-bandit", ...args] };
    };
    const undisturbed = fresh();
    expect(await commandHere(["cluster", ...undisturbed.args, "--actors=one-thread"])).toMatchObject({ code: 0 });

    const disturbed = fresh();
    const run = new RunProcess(disturbed.folder, disturbed.args);
    await run.updated(3);
    const next = run.next(exited("learner"), updated);
    server.restart();
    const [noticed, updates] = (await next) as [number, number];
    figure("training server lost its models", { noticed: ms(noticed), "next update": ms(updates) });
    await run.updated(6);
    process.kill(run.pid("learner"), "SIGKILL");
    expectSuccess(await run.ended);
    const learnt = ({ folder }: { folder: string }) => ({
      success: JSON.parse(readFileSync(join(folder, "report.json"), "utf8")).success,
      metrics: timeIndependentMetrics(folder),
    });
    expect(learnt(run)).toEqual(learnt(undisturbed));
    expect(server.asked.filter((asked) => asked === "load_weights")).toHaveLength(2);
  },
  LONG,
);
