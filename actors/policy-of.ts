/** The built-in policy of a run: its tokenizer and the shape of its network. */
import { Tokenizer } from "../model/tokenizer.ts";
import { ModelConfig } from "../model/transformer.ts";
import type { RunConfig } from "./config.ts";

export function policyOf({ model }: RunConfig): { tokenizer: Tokenizer; model: ModelConfig } {
  const tokenizer = new Tokenizer();
  const headWidth = model.width / model.heads;
  return { tokenizer, model: ModelConfig.parse({ ...model, headWidth, vocabulary: tokenizer.size }) };
}
