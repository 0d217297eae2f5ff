/** The policy of a run: its dialogue format and the shape of its network, built in or from a pretrained model. */
import { ModelConfig } from "../../model/policy/model-config.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import type { RunConfig } from "../config/config.ts";
import { readPretrained } from "./pretrained.ts";

/** @throws {CheckpointFormatError} in one line, if a pretrained model cannot be used. */
export function policyOf({ model }: RunConfig): { dialogue: Dialogue; model: ModelConfig } {
  const { path, lora, width, layers, heads, kvHeads, hidden } = model;
  if (path !== null) {
    const read = readPretrained(path);
    return lora.rank === 0 ? read : { ...read, model: { ...read.model, lora } };
  }
  const tokenizer = new Tokenizer();
  const shape = { width, layers, heads, kvHeads, hidden };
  const headWidth = width / heads;
  return {
    dialogue: builtinDialogue(tokenizer),
    model: ModelConfig.parse({ ...shape, headWidth, vocabulary: tokenizer.size }),
  };
}
