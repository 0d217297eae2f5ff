import { expect, test } from "bun:test";
import { join } from "node:path";
import { pretrainedDialogue } from "../../../model/text/chat-template.ts";

const FOLDER = join(import.meta.dir, "../../golden/checkpoints/qwen3");
const json = (name: string) => Bun.file(join(FOLDER, name)).json();
const files = {
  folder: "DIR",
  tokenizer: await json("tokenizer.json"),
  tokenizerConfig: await json("tokenizer_config.json"),
  generationConfig: null,
};
const CHATML =
  "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

/** What the template prints in front of the first message. */
function printed(template: string): string {
  const dialogue = pretrainedDialogue({ ...files, chatTemplate: template + CHATML }, 512);
  const prompt = dialogue.promptTokens([{ role: "user", content: "x" }], { first: true, prefix: "<think>" });
  return dialogue.replyText(prompt, "<answer>").slice("<answer>".length).split("user\n")[0]!;
}

test("a template gets tools and documents as in transformers: both are defined, and their value is none", () => {
  expect(printed("{% if tools is not none %}tools{% endif %}{% if documents is none %}no documents{% endif %}")).toBe(
    "no documents",
  );
  expect(printed("{% if tools is defined and not tools %}no tools{% endif %}")).toBe("no tools");
});
