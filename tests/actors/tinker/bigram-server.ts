/**
 * A server of Tinker's protocol with a policy that a test can compute: the logits of the next token are a row of a table, the row of
 * the token before. The server trains and samples like skyrl-tx: it divides the loss of a sequence by the sum of the sequence's weights, a
 * gradient is the mean over the sequences since the last step, and the server keeps one set of weights for each model.
 */
import { sequence } from "../../../model/rng.ts";

export interface BigramModel {
  /** (V, V) logits. */
  readonly table: Float64Array;
  /** Sum of the gradients of sequences, and their number, since the last step. */
  readonly gradient: Float64Array;
  sequences: number;
  readonly moment: Float64Array;
  readonly variance: Float64Array;
  steps: number;
  /** The last version that the server loaded into the table for sampling. */
  sampled: string;
}

interface Datum {
  readonly model_input: { readonly chunks: readonly [{ readonly tokens: readonly number[] }] };
  readonly loss_fn_inputs: Readonly<Record<string, { readonly data: readonly number[] }>>;
}

// biome-ignore lint/suspicious/noExplicitAny: JSON of the code under test
type Body = any;

const TABLES = ["table", "moment", "variance"] as const;

export class BigramServer {
  readonly #vocabulary: number;
  readonly #server: ReturnType<typeof Bun.serve>;
  readonly models = new Map<string, BigramModel>();
  /** Saved models by path. They outlive a restart, like files on a disk. */
  readonly #saved = new Map<string, BigramModel>();
  readonly #results = new Map<string, unknown>();
  #ids = 0;
  /** Number of replies that other weights than those of the asked version wrote. */
  mixed = 0;
  /** Names of the served models. */
  names: readonly string[] = ["bigrams"];
  /** Names of the requests so far, without the requests for results. */
  readonly asked: string[] = [];
  /** If this function returns a response, the response replaces the server's answer. */
  interfere: (path: string) => Response | null = () => null;

  constructor(vocabulary: number) {
    this.#vocabulary = vocabulary;
    this.#server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: async (request) => {
        const path = new URL(request.url).pathname.replace("/api/v1/", "");
        const other = this.interfere(path);
        if (other !== null) return other;
        if (path !== "retrieve_future") this.asked.push(path);
        try {
          return Response.json(this.#answer(path, request.method === "GET" ? {} : await request.json()));
        } catch (error) {
          return Response.json({ detail: (error as Error).message }, { status: 400 });
        }
      },
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.port}`;
  }

  /** Acts like a process that was started again: what it held in memory is gone. */
  restart(): void {
    this.models.clear();
    this.#results.clear();
  }

  stop(): Promise<void> {
    return this.#server.stop(true);
  }

  #answer(path: string, body: Body): unknown {
    switch (path) {
      case "get_server_capabilities":
        return { supported_models: this.names.map((model_name) => ({ model_name })) };
      case "create_session":
        return { session_id: `session_${this.#ids++}` };
      case "session_heartbeat":
        return {};
      case "retrieve_future":
        if (!this.#results.has(body.request_id)) throw new Error("Future not found");
        return this.#results.get(body.request_id);
      default:
        return this.#later(this.#compute(path, body));
    }
  }

  #later(result: unknown) {
    const request_id = String(this.#ids++);
    this.#results.set(request_id, result);
    return { request_id };
  }

  #compute(path: string, body: Body): unknown {
    switch (path) {
      case "create_model": {
        const size = this.#vocabulary ** 2;
        const zeros = () => new Float64Array(size);
        const model_id = `model_${this.#ids++}`;
        const arrays = { table: zeros(), gradient: zeros(), moment: zeros(), variance: zeros() };
        this.models.set(model_id, { ...arrays, sequences: 0, steps: 0, sampled: "" });
        return { model_id };
      }
      case "forward":
      case "forward_backward": {
        const { data, loss_fn } = body[`${path}_input`] as { data: readonly Datum[]; loss_fn: string };
        const model = this.#model(body.model_id);
        const rows = data.map((datum) => this.#pass(model, datum, loss_fn, path === "forward_backward"));
        return { loss_fn_outputs: rows.map((row) => ({ logprobs: { data: row } })) };
      }
      case "optim_step":
        this.#step(this.#model(body.model_id), body.adam_params);
        return {};
      case "save_weights":
      case "save_weights_for_sampler": {
        const kind = path === "save_weights" ? "weights" : "sampler_weights";
        const name = `tinker://${body.model_id}/${kind}/${body.path}`;
        if (this.#saved.has(name)) throw new Error(`Checkpoint '${body.path}' already exists`);
        this.#saved.set(name, structuredClone(this.#model(body.model_id)));
        return { path: name };
      }
      case "load_weights": {
        const saved = this.#saved.get(body.path);
        if (saved === undefined) throw new Error("Checkpoint not found");
        const model = this.#model(body.model_id);
        for (const name of TABLES) model[name].set(saved[name]);
        model.steps = saved.steps;
        return {};
      }
      case "unload_model":
        this.models.delete(body.model_id);
        return {};
      case "asample":
        return this.#sample(body);
      default:
        throw new Error(`no ${path}`);
    }
  }

  #model(id: string): BigramModel {
    const model = this.models.get(id);
    if (model === undefined) throw new Error(`Model ${id} not loaded`);
    return model;
  }

  /** (V) probabilities of the token after `token`. */
  #probabilities({ table }: BigramModel, token: number, temperature = 1): number[] {
    const row = Array.from(table.subarray(token * this.#vocabulary, (token + 1) * this.#vocabulary));
    const weights = row.map((logit) => Math.exp(logit / temperature));
    const sum = weights.reduce((all, weight) => all + weight, 0);
    return weights.map((weight) => weight / sum);
  }

  /** (tokens) log-probabilities of the targets. */
  #pass(model: BigramModel, { model_input, loss_fn_inputs }: Datum, loss: string, learns: boolean): number[] {
    const { tokens } = model_input.chunks[0];
    const { target_tokens, weights, advantages, logprobs } = loss_fn_inputs;
    const lengths = Object.values(loss_fn_inputs).map(({ data }) => data.length);
    if (lengths.some((length) => length !== tokens.length)) throw new Error(`lengths ${tokens.length} and ${lengths}`);
    const mass = weights!.data.reduce((sum, weight) => sum + weight, 0);
    if (learns) model.sequences++;
    return tokens.map((token, at) => {
      const probabilities = this.#probabilities(model, token);
      const target = target_tokens!.data[at]!;
      const logProb = Math.log(probabilities[target]!);
      if (!learns) return logProb;
      const ratio = loss === "ppo" ? Math.exp(logProb - logprobs!.data[at]!) : 1;
      const advantage = loss === "ppo" ? advantages!.data[at]! : 1;
      const clipped = advantage > 0 ? ratio > 1.2 : ratio < 0.8;
      const slope = clipped && loss === "ppo" ? 0 : (-ratio * advantage * weights!.data[at]!) / Math.max(mass, 1e-9);
      for (let v = 0; v < this.#vocabulary; v++) {
        model.gradient[token * this.#vocabulary + v]! += slope * (Number(v === target) - probabilities[v]!);
      }
      return logProb;
    });
  }

  #step(model: BigramModel, params: Readonly<Record<"learning_rate" | "beta1" | "beta2" | "eps", number>>): void {
    const { learning_rate, beta1, beta2, eps } = params;
    model.steps++;
    for (const [i, sum] of model.gradient.entries()) {
      const gradient = sum / model.sequences;
      model.moment[i] = beta1 * model.moment[i]! + (1 - beta1) * gradient;
      model.variance[i] = beta2 * model.variance[i]! + (1 - beta2) * gradient ** 2;
      const moment = model.moment[i]! / (1 - beta1 ** model.steps);
      model.table[i]! -= (learning_rate * moment) / (Math.sqrt(model.variance[i]! / (1 - beta2 ** model.steps)) + eps);
    }
    model.gradient.fill(0);
    model.sequences = 0;
  }

  #sample(body: Body) {
    const name = body.model_path as string;
    const saved = this.#saved.get(name);
    if (saved === undefined) throw new Error(`Checkpoint not found: ${name}`);
    // Like skyrl-tx, the server samples a version from the model's current table, even if training has changed the table.
    const model = this.#model(name.split("/")[2]!);
    if (model.sampled !== name) model.table.set(saved.table);
    model.sampled = name;
    if (model.table.some((value, i) => value !== saved.table[i])) this.mixed++;
    const { max_tokens, seed, stop, temperature } = body.sampling_params as {
      readonly max_tokens: number;
      readonly seed: number;
      readonly stop: readonly number[];
      readonly temperature: number;
    };
    const prompt = body.prompt as Datum["model_input"];
    const uniform = sequence(seed, "sample");
    const tokens: number[] = [];
    const logprobs: number[] = [];
    while (tokens.length < max_tokens) {
      const before = tokens.at(-1) ?? prompt.chunks[0].tokens.at(-1)!;
      let left = uniform();
      const probabilities = this.#probabilities(model, before, temperature === 0 ? 0.01 : temperature);
      const token = Math.max(
        0,
        probabilities.findIndex((probability) => {
          left -= probability;
          return left < 0;
        }),
      );
      tokens.push(token);
      logprobs.push(Math.log(this.#probabilities(model, before)[token]!));
      if (stop.includes(token)) return { sequences: [{ tokens, logprobs, stop_reason: "stop" }] };
    }
    return { sequences: [{ tokens, logprobs, stop_reason: "length" }] };
  }
}
