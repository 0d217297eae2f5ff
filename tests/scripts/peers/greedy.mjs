/**
 * What llama.cpp computes with an exported GGUF file. Arguments: folder where node-llama-cpp is installed, the file, and JSON
 * {prompts, count, texts}. Writes JSON {tokens: greedy continuations, each to its first token that ends a reply, ids: of each text}.
 */
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , home, file, asked] = process.argv;
const { prompts, count, texts } = JSON.parse(asked);
const entry = createRequire(join(home, "package.json")).resolve("node-llama-cpp");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry).href);
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({ contextSize: 64, sequences: 1, batchSize: 64, threads: 1 });
const tokens = [];
for (const prompt of prompts) {
  const sequence = context.getSequence();
  const said = [];
  for await (const token of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    said.push(token);
    if (said.length === count) break;
  }
  sequence.dispose();
  tokens.push(said);
}
console.log(JSON.stringify({ tokens, ids: texts.map((text) => model.tokenize(text, false)) }));
process.exit(0);
