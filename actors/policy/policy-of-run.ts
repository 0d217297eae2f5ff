/** The policy of a run: its dialogue format and the shape of its network, built in or from a pretrained model. */
import { CheckpointFormatError } from "../../model/checkpoint/config.ts";
import { ATTENTION_TARGETS, isOfAttention, type Lora } from "../../model/policy/lora.ts";
import { ModelConfig } from "../../model/policy/model-config.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import type { RunConfig } from "../config/config.ts";
import { readPretrained } from "./pretrained.ts";

/** @throws {CheckpointFormatError} in one line, if a pretrained model cannot be used. */
export function policyOf({ model, engine }: RunConfig): { dialogue: Dialogue; model: ModelConfig } {
  const { path, lora, width, layers, heads, kvHeads, hidden } = model;
  if (path !== null) {
    const read = readPretrained(path);
    if (lora.rank === 0) return read;
    // A server of Tinker's protocol chooses the adapted matrices itself.
    if (engine.name !== "tinker") checkTargets(read.model, lora.targets);
    return { ...read, model: { ...read.model, lora } };
  }
  const tokenizer = new Tokenizer();
  const shape = { width, layers, heads, kvHeads, hidden };
  const headWidth = width / heads;
  return {
    dialogue: builtinDialogue(tokenizer),
    model: ModelConfig.parse({ ...shape, headWidth, vocabulary: tokenizer.size }),
  };
}

/** @throws {CheckpointFormatError} if a matrix cannot have an adapter */
function checkTargets({ experts }: ModelConfig, targets: Lora["targets"]): void {
  const odd = experts === null ? [] : targets.filter((target) => !isOfAttention(target));
  if (odd.length === 0) return;
  throw new CheckpointFormatError(
    `experts have no adapters: model.lora.targets has ${odd.join(", ")}; set --model.lora.targets='${JSON.stringify(ATTENTION_TARGETS)}'`,
  );
}
