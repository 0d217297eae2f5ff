/**
 * Whole Hugging Face folders that transformers wrote (tests/golden/checkpoints.py), read as a run reads them: weights in shards
 * and in halves, configs, tokenizers and chat templates, and what Python computed with them.
 */
import { describe, expect, test } from "bun:test";
import { cpSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../../actors/config/config.ts";
import { checkPretrained, loadPretrained, policyOf, readPretrained } from "../../../actors/policy/pretrained.ts";
import { lossOnOf } from "../../../actors/training/update-settings.ts";
import { readSafetensors } from "../../../model/checkpoint/safetensors.ts";
import { Decoder } from "../../../model/decode/decoder.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { eagerEngine } from "../../../model/engine/eager.ts";
import type { Engine } from "../../../model/engine/engine.ts";
import { layParameters } from "../../../model/policy/parameters.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import type { Message } from "../../../model/text/dialogue.ts";
import { stepSlots } from "../../model/decode/steps.ts";
import { expectGoldenAdapters, expectGoldenStep } from "../../model/learn/golden-step.ts";
import type { Golden, GoldenRecord } from "../../model/policy/golden-model.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const NAMES = ["qwen2", "qwen3", "qwen3_moe", "llama", "mistral", "smollm3", "gemma3"] as const;
const folderOf = (name: string) => join(import.meta.dir, "../../golden/checkpoints", name);

interface Expected extends GoldenRecord {
  readonly stops: number[];
  readonly strings: string[];
  readonly ids: number[][];
  readonly decoded: string[];
  readonly dialogues: { messages: Message[]; text: string; ids: number[] }[];
}
const expectedOf = (name: string) => Bun.file(join(folderOf(name), "expected.json")).json() as Promise<Expected>;

async function golden(name: string): Promise<Golden> {
  const folder = folderOf(name);
  const { model } = readPretrained(folder);
  const parameters = layParameters(model);
  await loadPretrained(folder, model, parameters);
  const file = join(folder, "expected.safetensors");
  const { tensors } = readSafetensors(await Bun.file(file).bytes(), file);
  return { record: await expectedOf(name), model, parameters, expected: tensors };
}

const engines: [string, Engine][] = [
  ["compiled", compiledEngine({ threads: 1 })],
  ["eager", eagerEngine()],
];

describe.each(engines)("on the %s engine", (_, engine) => {
  test.each(NAMES)("%s gives Python's logits, log-probabilities, gradients and AdamW step", async (name) => {
    await expectGoldenStep(engine, await golden(name));
  });

  test.each(NAMES)("%s gives peft's gradients and AdamW step of adapters", async (name) => {
    await expectGoldenAdapters(engine, await golden(name));
  });

  test.each(NAMES)("%s continues greedily as transformers does", async (name) => {
    const { record, model, parameters } = await golden(name);
    const { prompt, tokens, logProbs } = record.decode;
    const decoder = new Decoder(engine, model, parameters.flat, { slots: prompt.length, capacity: 16 });
    const best = (row: Float32Array) => {
      const most = Math.max(...row);
      const total = row.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
      return { token: row.indexOf(most), logProb: -Math.log(total) };
    };
    const rows = (logits: Float32Array) =>
      prompt.map((_, row) => best(logits.subarray(row * model.vocabulary, (row + 1) * model.vocabulary)));
    let next = rows(await decoder.append([...prompt.keys()], prompt));
    const said: number[][] = prompt.map(() => []);
    for (let step = 0; step < tokens[0]!.length; step++) {
      for (const [row, { token, logProb }] of next.entries()) {
        said[row]!.push(token);
        expect(Math.abs(logProb - logProbs[row]![step]!)).toBeLessThan(1e-4);
      }
      if (step + 1 < tokens[0]!.length) {
        const best = next.map(({ token }) => token);
        next = rows(await stepSlots(decoder, best, model.vocabulary));
      }
    }
    expect(said).toEqual(tokens);
  });
});

describe.each(NAMES)("the tokenizer of %s", (name) => {
  const { dialogue } = readPretrained(folderOf(name));
  const prompt = (messages: Message[], options: { first?: boolean; cut?: boolean } = {}) =>
    dialogue.promptTokens(messages, { first: true, prefix: "<think>", ...options });

  test("gives Python's ids for a few hundred texts, and their text back", async () => {
    const { strings, ids, decoded } = await expectedOf(name);
    expect(strings.length).toBeGreaterThan(100);
    for (const [i, text] of strings.entries()) {
      // The reply begins behind its prefix, and ends with the end of the turn.
      expect(dialogue.replyTokens(`<think>${text}`, "<think>").slice(0, -1)).toEqual(ids[i]!);
      expect(dialogue.replyText(ids[i]!, "<answer>")).toBe(`<answer>${decoded[i]}`);
    }
  });

  test("asks as the chat template does, and adds the beginning of the reply", async () => {
    const { dialogues, stops } = await expectedOf(name);
    const think = dialogue.replyTokens("<think><think>", "<think>").slice(0, -1);
    for (const { messages, ids } of dialogues.filter(({ messages }) => messages.every((m) => m.role !== "assistant"))) {
      expect(prompt(messages)).toEqual([...ids, ...think]);
    }
    expect([...dialogue.stops].sort()).toEqual([...stops].sort());
  });

  test("continues behind a reply with exactly what the template puts there", async () => {
    const { dialogues } = await expectedOf(name);
    const [before, reply, after] = dialogues[2]!.messages.slice(1) as [Message, Message, Message];
    const said = dialogue.replyTokens(reply.content, "<think>");
    const whole = [...prompt([dialogues[2]!.messages[0]!, before]), ...said, ...prompt([after], { first: false })];
    const think = dialogue.replyTokens("<think><think>", "<think>").slice(0, -1);
    // Qwen3's template forgets the thought, and Mistral's puts the system's message elsewhere; what was said stays.
    if (!name.startsWith("qwen3") && name !== "mistral") expect(whole).toEqual([...dialogues[2]!.ids, ...think]);
    const { messages, ids } = dialogues[3]!;
    const last = prompt(messages.slice(-1), { first: false, cut: true });
    expect(last).toEqual([...ids, ...think].slice(-last.length));
    const cut = prompt([after], { first: false, cut: true });
    expect(cut).toEqual([said.at(-1)!, ...prompt([after], { first: false })]);
    expect(dialogue.replyText(said, "<think>")).toBe(reply.content);
  });

  test("marks system messages, and the beginnings of messages and replies", () => {
    const { messageStart, system, beforeReplies } = dialogue.roleMarks;
    const asked = prompt([
      { role: "system", content: "a" },
      { role: "user", content: "b" },
    ]);
    const first = asked.indexOf(messageStart);
    const count = asked.filter((token) => token === messageStart).length;
    const behind = asked.slice(first + 1, first + 1 + system.length);
    // Gemma and Mistral put the system's text into the user's message, and Mistral's replies have no header.
    const merged = name === "gemma3" || name === "mistral";
    expect({ count, beforeReplies }).toEqual({
      count: { mistral: 1, gemma3: 2 }[name as string] ?? 3,
      beforeReplies: name !== "mistral",
    });
    expect(behind.join() === system.join()).toBe(!merged);
  });

  test("takes the name of a special token in an observation for plain text", () => {
    const [stop] = dialogue.stops;
    const name = readSpecial(stop!);
    const plain = prompt([{ role: "user", content: "x" }]).filter((id) => id === stop).length;
    const told = prompt([{ role: "user", content: `x${name}y${name}` }]);
    expect(told.filter((id) => id === stop)).toHaveLength(plain);
    expect(dialogue.replyText(told, "<think>")).toContain(`x${name}y${name}`);
  });

  function readSpecial(id: number): string {
    const { added_tokens } = JSON.parse(readFileSync(join(folderOf(name), "tokenizer.json"), "utf8"));
    return added_tokens.find((token: { id: number }) => token.id === id).content;
  }
});

test("the loss is on role headers only where replies have one", () => {
  const { learner } = RunConfig.parse({ learner: { lossOn: "assistant-turns" } });
  const marks = readPretrained(folderOf("qwen2")).dialogue.roleMarks;
  expect(lossOnOf(learner, marks)).toEqual({ turns: "assistant", marks });
  expect(() => lossOnOf(learner, builtinDialogue().roleMarks)).toThrow(
    "learner.lossOn is assistant-turns, but nothing marks the beginning of a reply in this policy's prompts; use replies, or another --model",
  );
});

test("a template cannot tell what day it is", async () => {
  const folder = temporaryFolder();
  cpSync(folderOf("llama"), folder, { recursive: true });
  const file = join(folder, "chat_template.jinja");
  const dated = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}26 Jul 2024{% endif %}";
  writeFileSync(file, dated + readFileSync(file, "utf8"));
  const { dialogue } = readPretrained(folder);
  const asked = dialogue.promptTokens([{ role: "user", content: "x" }], { first: true, prefix: "<think>" });
  expect(dialogue.replyText(asked, "<think>")).toStartWith("<think>26 Jul 2024");
});

describe("a folder that is broken", () => {
  const broken = (name: string, change: (file: (name: string) => string) => void) => async () => {
    const folder = temporaryFolder();
    cpSync(folderOf(name), folder, { recursive: true });
    change((file) => join(folder, file));
    const error = await checkPretrained(folder).then(
      () => null,
      (error: Error) => error,
    );
    return error?.message.replaceAll(folder, "DIR") ?? "nothing";
  };
  const edit = (file: string, change: (json: Record<string, unknown>) => unknown) => {
    const json = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify(change(json) ?? json));
  };
  const set = (file: string, values: object) => edit(file, (json) => ({ ...json, ...values }));

  test.each<[string, () => Promise<string>, RegExp]>([
    [
      "a missing shard",
      broken("qwen2", (at) => rmSync(at("model-00002-of-00002.safetensors"))),
      /cannot read DIR\/model-00002-of-00002.safetensors, a part of the model's weights: ENOENT/,
    ],
    [
      "more parameters than an array holds",
      broken("qwen2", (at) => set(at("config.json"), { intermediate_size: 2 ** 26 })),
      /^cannot use the model of DIR: it has \d{4} million parameters, and Bunraku holds at most 1073 million, 4 GiB in float32; choose a smaller model, or train the model at a server \(--engine tinker\)$/,
    ],
    [
      "a pipe in place of a file",
      broken("qwen2", (at) => {
        rmSync(at("tokenizer.json"));
        Bun.spawnSync(["mkfifo", at("tokenizer.json")]);
      }),
      /cannot read DIR\/tokenizer.json: it is not a regular file/,
    ],
    [
      "a device in place of the weights",
      broken("llama", (at) => {
        rmSync(at("model.safetensors"));
        symlinkSync("/dev/zero", at("model.safetensors"));
      }),
      /cannot read DIR\/model.safetensors, a part of the model's weights: it is not a regular file/,
    ],
    [
      "a billion layers",
      broken("qwen2", (at) => set(at("config.json"), { num_hidden_layers: 1e9 })),
      /expected number to be <=1000 → at num_hidden_layers/,
    ],
    [
      "a chat template with an endless loop",
      broken("llama", (at) =>
        writeFileSync(
          at("chat_template.jinja"),
          "{% for i in range(60000) %}{% for j in range(60000) %}{{ j }}{% endfor %}{% endfor %}",
        ),
      ),
      /cannot use the chat template of DIR: it takes more than 200000 steps/,
    ],
    [
      "a chat template with loops over its own list in each other",
      broken("llama", (at) => {
        const loops = (depth: number): string =>
          depth === 0 ? "x" : `{% for i${depth} in list %}${loops(depth - 1)}{% endfor %}`;
        writeFileSync(at("chat_template.jinja"), `{% set list = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] %}${loops(9)}`);
      }),
      /cannot use the chat template of DIR: it takes more than 200000 steps/,
    ],
    [
      "a chat template that counts far",
      broken("llama", (at) => writeFileSync(at("chat_template.jinja"), "{% for i in range(10 ** 9) %}{% endfor %}")),
      /cannot use the chat template of DIR: /,
    ],
    [
      "no weights",
      broken("llama", (at) => rmSync(at("model.safetensors"))),
      /DIR has neither model.safetensors nor model.safetensors.index.json/,
    ],
    [
      "another width",
      broken("qwen3", (at) => set(at("config.json"), { intermediate_size: 24 })),
      /DIR\/model.safetensors: tensor model.layers.0.mlp.down_proj.weight is \[8,16\], expected \[8,24\] by config.json/,
    ],
    [
      "a layer too many",
      broken("llama", (at) => set(at("config.json"), { num_hidden_layers: 3 })),
      /DIR: tensor model.layers.2.input_layernorm.weight \[8\] is in none of its 1 files/,
    ],
    [
      "a layer too few",
      broken("llama", (at) => set(at("config.json"), { num_hidden_layers: 1 })),
      /DIR\/model.safetensors: tensor model.layers.1.\S+ \[.*\] does not belong to the architecture in config.json/,
    ],
    [
      "an unknown architecture",
      broken("llama", (at) => set(at("config.json"), { model_type: "gpt2" })),
      /cannot use DIR\/config.json: model_type "gpt2"; supported are qwen2, qwen3, qwen3_moe, llama/,
    ],
    [
      "another activation",
      broken("llama", (at) => set(at("config.json"), { hidden_act: "gelu" })),
      /cannot use DIR\/config.json: hidden_act "gelu"; supported are silu, gelu_pytorch_tanh/,
    ],
    [
      "a mixture of experts of another kind",
      broken("qwen3_moe", (at) => set(at("config.json"), { model_type: "mixtral" })),
      /model_type "mixtral"; qwen3_moe is the only supported mixture of experts; supported are qwen2, .*, gemma3_text$/,
    ],
    [
      "a mixture of experts that does not say how many a token gets",
      broken("qwen3_moe", (at) => set(at("config.json"), { num_experts_per_tok: null })),
      /needs num_experts, num_experts_per_tok and moe_intermediate_size, found {"num_experts":4,"num_experts_per_tok":null,/,
    ],
    [
      "more experts for a token than there are",
      broken("qwen3_moe", (at) => set(at("config.json"), { num_experts_per_tok: 5 })),
      /used must be at most count: a token cannot have more experts than a layer/,
    ],
    [
      "layers without experts",
      broken("qwen3_moe", (at) => set(at("config.json"), { mlp_only_layers: [0] })),
      /decoder_sparse_step or mlp_only_layers leave layers without experts; every layer must have experts/,
    ],
    [
      "a model that reads images",
      broken("gemma3", (at) => set(at("config.json"), { model_type: "gemma3" })),
      /model_type "gemma3"; it reads images too; take a text model, such as gemma-3-270m-it/,
    ],
    [
      "soft caps",
      broken("gemma3", (at) => set(at("config.json"), { final_logit_softcapping: 30 })),
      /final_logit_softcapping 30; soft caps are not supported/,
    ],
    [
      "sliding layers without positions",
      broken("smollm3", (at) => set(at("config.json"), { use_sliding_window: true })),
      /use_sliding_window true; sliding layers without positions are not supported/,
    ],
    [
      "a scaled rotation of sliding layers",
      broken("gemma3", (at) =>
        edit(at("config.json"), ({ rope_parameters: rope, ...json }) => ({
          ...json,
          rope_parameters: { ...(rope as object), sliding_attention: { rope_type: "linear", factor: 2 } },
        })),
      ),
      /rope scaling "linear" of sliding-attention layers is not supported/,
    ],
    [
      "a tokenizer that puts spaces everywhere",
      broken("mistral", (at) =>
        edit(at("tokenizer.json"), (json) => ({ ...json, normalizer: { type: "Prepend", prepend: "▁" } })),
      ),
      /cannot use DIR\/tokenizer.json: the tokenizer puts a space before every text/,
    ],
    [
      "a byte without a piece",
      broken("gemma3", (at) =>
        edit(
          at("tokenizer.json"),
          (json) => void delete (json as { model: { vocab: Record<string, number> } }).model.vocab["<0x7F>"],
        ),
      ),
      /it has no piece "<0x7F>" for one of the 256 bytes; only byte-level BPE, or BPE with byte fallback, is supported/,
    ],
    [
      "an unknown rope scaling",
      broken("llama", (at) => set(at("config.json"), { rope_parameters: { rope_type: "dynamic" } })),
      /rope scaling "dynamic"; supported are default, linear, llama3 and yarn/,
    ],
    [
      "a truncated file",
      broken("llama", (at) => truncateSync(at("model.safetensors"), 5000)),
      /cannot read DIR\/model.safetensors: tensor "[^"]+" ends at byte \d+ of the data, but the data has \d+ bytes; the file was cut/,
    ],
    [
      "a corrupt header",
      broken("llama", (at) => writeFileSync(at("model.safetensors"), "garbage that is no header")),
      /cannot read DIR\/model.safetensors: its header claims \d+ bytes/,
    ],
    [
      "a shard of another model",
      broken("qwen2", (at) => cpSync(at("model-00001-of-00002.safetensors"), at("model-00002-of-00002.safetensors"))),
      /DIR\/model-00002-of-00002.safetensors/,
    ],
    [
      "an index that reaches elsewhere",
      broken("qwen2", (at) => set(at("model.safetensors.index.json"), { weight_map: { x: "../x.safetensors" } })),
      /cannot use DIR\/model.safetensors.index.json: .*weight_map/,
    ],
    [
      "a config that is not JSON",
      broken("qwen2", (at) => writeFileSync(at("config.json"), "{")),
      /cannot use DIR\/config.json: not JSON/,
    ],
    [
      "a tokenizer of a larger model",
      broken("qwen2", (at) => set(at("config.json"), { vocab_size: 400 })),
      /cannot use DIR\/tokenizer.json: token ".+" has id \d+, but config.json says vocab_size 400/,
    ],
    [
      "a tokenizer of another kind",
      broken("qwen2", (at) =>
        edit(at("tokenizer.json"), (json) => ({ ...json, model: { type: "Unigram", vocab: {}, merges: [] } })),
      ),
      /cannot use DIR\/tokenizer.json: its model is "Unigram"; only byte-level BPE, or BPE with byte fallback/,
    ],
    [
      "a merge with an unknown piece",
      broken("qwen2", (at) =>
        edit(at("tokenizer.json"), (json) => void (json["model"] as { merges: unknown[] }).merges.push(["zz", "qq"])),
      ),
      /a merge of "zz" and "qq" has an unknown piece, "zz"/,
    ],
    [
      "a chat template that is none",
      broken("qwen3", (at) => writeFileSync(at("chat_template.jinja"), "{% for message in %}")),
      /cannot read the chat template of DIR: /,
    ],
    [
      "a chat template that refuses to go on",
      broken("qwen3", (at) => writeFileSync(at("chat_template.jinja"), "{{ raise_exception('no') }}")),
      /cannot use the chat template of DIR: it rejects these messages: no/,
    ],
    [
      "a chat template without ends",
      broken("qwen3", (at) =>
        writeFileSync(at("chat_template.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}"),
      ),
      /the chat template of DIR does not end a reply with a special token/,
    ],
    ["no chat template", broken("qwen3", (at) => rmSync(at("chat_template.jinja"))), /DIR has no chat template/],
    [
      "an output layer that is not tied",
      broken("qwen3", (at) => set(at("config.json"), { tie_word_embeddings: true })),
      /^nothing$/,
    ],
  ])("by %s is one line", async (_, message, expected) => {
    const text = await message();
    expect(text).toMatch(expected);
    expect(text).not.toContain("\n");
  });

  test("by an output layer that the config calls tied and is not is found when it is read", async () => {
    const folder = temporaryFolder();
    cpSync(folderOf("qwen3"), folder, { recursive: true });
    set(join(folder, "config.json"), { tie_word_embeddings: true });
    const { model } = readPretrained(folder);
    await expect(loadPretrained(folder, model, layParameters(model))).rejects.toThrow(
      "lm_head.weight differs from the embedding, but config.json says tie_word_embeddings",
    );
  });
});

test("adapters on experts are refused, but at a server, which chooses its own", () => {
  const config = (engine: object, targets?: string[]) =>
    RunConfig.parse({ model: { path: folderOf("qwen3_moe"), lora: { rank: 2, targets } }, engine });
  expect(() => policyOf(config({}))).toThrow(
    `experts cannot have adapters, but model.lora.targets has gate_proj, up_proj, down_proj; set --model.lora.targets='["q_proj","k_proj","v_proj","o_proj"]'`,
  );
  expect(policyOf(config({}, ["q_proj", "o_proj"])).model.lora).toMatchObject({ rank: 2 });
  expect(policyOf(config({ name: "tinker" })).model.lora).toMatchObject({ rank: 2 });
});
