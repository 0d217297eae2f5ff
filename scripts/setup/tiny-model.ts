/** A Qwen3 of 0.1 million random parameters with the built-in tokenizer: small enough for a server of engine tinker on a laptop. */
import { exportHuggingFace } from "../../actors/policy/export.ts";
import { ModelConfig } from "../../model/policy/model-config.ts";
import { initialize, layParameters } from "../../model/policy/parameters.ts";
import { sequence } from "../../model/rng.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";

/**
 * The embedding is also the output layer, and adapters do not change it. With an embedding of the usual scale, training could make no token
 * likely.
 */
const EMBEDDING_SCALE = 8;

/** @throws {Error} if the folder exists, or cannot be written */
export async function writeTinyModel(folder: string): Promise<void> {
  const tokenizer = new Tokenizer();
  const shape = { width: 64, layers: 2, heads: 4, kvHeads: 2, headWidth: 16, hidden: 128, vocabulary: tokenizer.size };
  const model = ModelConfig.parse({ ...shape, qkvBias: false, qkNorm: true });
  const parameters = layParameters(model);
  initialize(parameters, sequence(1, "initial weights"));
  const embedding = parameters.views.get("model.embed_tokens.weight")!.values;
  for (const [i, value] of embedding.entries()) embedding[i] = EMBEDDING_SCALE * value;
  const dialogue = builtinDialogue(tokenizer);
  await exportHuggingFace({ model, dialogue, parameters: parameters.flat, base: null, contextTokensMax: 2048 }, folder);
}
