/**
 * Golden cases H6 and X7: prompts, byte for byte.
 *
 * H6 has dialogues without their inputs, so states, budgets, replies and rewards are read from the expected messages. The
 * project computes the rest.
 */
import { z } from "zod";
import { envTag, envTags } from "../../../../envs/registry.ts";
import type { EnvTag } from "../../../../envs/tag.ts";
import { alfworldMemory } from "../../../../envs/text/alfworld-memory.ts";
import { parseReply } from "../../../../envs/text/answer.ts";
import { type AnsweredTurn, type ContextMode, contextMessages, type History } from "../../../../envs/text/context.ts";
import type { Message } from "../../../../envs/text/prompt.ts";
import { type Check, eachVector, Vectors } from "../check.ts";

const Dialogue = z.array(z.object({ role: z.enum(["system", "user", "assistant"]), content: z.string() }));
type Dialogue = z.infer<typeof Dialogue>;
type RagenLayout = "ragen-v1" | "ragen-v2";

/** RAGEN's own keys; a key that is not here is refused. */
const Overrides = z.strictObject({
  "agent_proxy.enable_think": z.boolean().default(true),
  "agent_proxy.max_context_window": z.int().default(-1),
});
const Entry = z.object({ name: z.string(), overrides: Overrides.prefault({}), messages: z.array(Dialogue) });
type Entry = z.infer<typeof Entry>;
const EntryV1 = Entry.extend({ prepare_for_update: z.boolean(), texts_tail: z.array(z.string()).default([]) });
type EntryV1 = z.infer<typeof EntryV1>;
const EntryV2 = Entry.extend({ text_tail: z.array(z.string()).default([]) });
type EntryV2 = z.infer<typeof EntryV2>;
const H6 = z.object({ v1: Vectors, v2: Vectors, v2_system_prompts_by_tag: z.record(z.string(), z.string()) });

export function prompts(body: unknown): Check[] {
  const { v1, v2, v2_system_prompts_by_tag } = H6.parse(body);
  return [
    ...eachVector("v1", v1, EntryV1, (entry) => entryV1(entry, readable(v1, EntryV1))),
    ...eachVector("v2", v2, EntryV2, (entry) => entryV2(entry, readable(v2, EntryV2))),
    ...Object.entries(v2_system_prompts_by_tag).map(([name, expected]) => ({
      name: `v2 system prompt of ${name}`,
      expected,
      got: envTags().includes(name) ? systemPrompt(envTag(name)) : "an unknown env tag",
    })),
  ];
}

/** The vectors that fit the schema. Each other vector is a failed check of its own. */
function readable<T>(vectors: readonly unknown[], schema: z.ZodType<T>): T[] {
  return vectors.flatMap((raw) => {
    const { success, data } = schema.safeParse(raw);
    return success ? [data] : [];
  });
}

/** A limited context keeps only the last turns, so the history is read from the dialogue without a limit. */
function entryV1(entry: EntryV1, all: readonly EntryV1[]): Check[] {
  const { prepare_for_update: update } = entry;
  const { "agent_proxy.enable_think": think, "agent_proxy.max_context_window": given } = entry.overrides;
  // RAGEN v1 ignores a window that is not positive.
  const window = given > 0 ? given : null;
  const shape = { layout: "ragen-v1", mode: "limited_multi_turn", window, think, update } as const;
  const whole = window === null ? entry : all.find((other) => isWholeOf(other, entry));
  return entryChecks("v1", entry, whole, shape, entry.texts_tail);
}

function isWholeOf(other: EntryV1, entry: EntryV1): boolean {
  return (
    other.overrides["agent_proxy.max_context_window"] <= 0 &&
    other.overrides["agent_proxy.enable_think"] === entry.overrides["agent_proxy.enable_think"] &&
    other.prepare_for_update === entry.prepare_for_update
  );
}

function entryV2(entry: EntryV2, all: readonly EntryV2[]): Check[] {
  const { mode, window: named, update } = contextOf(entry.name);
  const { "agent_proxy.enable_think": think, "agent_proxy.max_context_window": given } = entry.overrides;
  const size = named === -1 ? given : named;
  const window = size === -1 ? null : size;
  const whole = all.find((other) => other.name === `full/${update ? "update" : "generation"}`);
  const shape = { layout: "ragen-v2", mode, window, think, update } as const;
  return entryChecks("v2", entry, whole, shape, entry.text_tail);
}

/** @param whole  the entry with the same dialogues without a limit */
function entryChecks(
  version: "v1" | "v2",
  { name, messages }: Entry,
  whole: Entry | undefined,
  shape: Shape,
  tails: readonly string[],
): Check[] {
  return messages.flatMap((expected, i) => {
    const source = whole?.messages[i];
    if (source === undefined)
      throw new Error(`${name}[${i}] needs the history of the full dialogue, which the file lacks`);
    return dialogueChecks(`${version} ${name}[${i}]`, expected, source, shape, tails[i]);
  });
}

function systemPrompt(tag: EnvTag): string | undefined {
  const opening: History = { answered: [], now: { observation: "", actionsLeft: tag.actionsMax } };
  return contextMessages(tag, opening, { layout: "ragen-v2", mode: "full", window: null, compat: true })[0]?.content;
}

/** "single_turn,w=2/generation" in parts. */
function contextOf(name: string): { mode: ContextMode; window: number; update: boolean } {
  const match = /^(full|limited_multi_turn|single_turn)(?:,w=(-?\d+))?\/(generation|update)$/.exec(name);
  if (match === null) throw new Error(`cannot read the context of ${JSON.stringify(name)}`);
  return { mode: match[1] as ContextMode, window: Number(match[2] ?? -1), update: match[3] === "update" };
}

interface Shape {
  readonly layout: RagenLayout;
  readonly mode: ContextMode;
  readonly window: number | null;
  readonly think: boolean;
  readonly update: boolean;
}

function dialogueChecks(name: string, expected: Dialogue, whole: Dialogue, shape: Shape, tail?: string): Check[] {
  const { layout, think, update } = shape;
  const tag = tagOf(whole, layout);
  const got = contextMessages(tag, historyOf(tag, whole, think), { ...shape, compat: true });
  const messages: Check = { name, expected, got };
  if (tail === undefined) return [messages];
  const text = chatml(got, update ? null : think ? "<think>" : "<answer>");
  return [messages, { name: `${name}: text`, expected: tail, got: text.slice(-tail.length) }];
}

/** The tag whose instruction the dialogue opens with. */
export function tagOf(dialogue: Dialogue, layout: RagenLayout): EnvTag {
  const told = dialogue.map(({ content }) => content);
  const words = (tag: EnvTag) => (layout === "ragen-v1" ? tag.wording.v1 : tag.wording.v2);
  const found = envTags()
    .map((name) => envTag(name))
    .sort((a, b) => words(b).length - words(a).length)
    .find((tag) => told.slice(0, 2).some((content) => content.includes(words(tag))));
  if (found === undefined) throw new Error(`no env tag has the instruction of ${JSON.stringify(told[0])}`);
  return found;
}

const STATE =
  /Turn \d+:\nState:\n([\s\S]*?)\n(?:No valid action provided previously[^\n]*\n)?You have (\d+) actions left\./;

function historyOf(tag: EnvTag, dialogue: Dialogue, think: boolean): History {
  const answered: AnsweredTurn[] = [];
  let now: History["now"] = null;
  dialogue.forEach(({ role, content }, i) => {
    if (role === "user") {
      const match = STATE.exec(content);
      if (match === null) throw new Error(`message ${i} lacks "Turn N:", a state or the actions left`);
      now = { observation: match[1]!, actionsLeft: Number(match[2]) };
    } else if (role === "assistant" && now !== null) {
      const [, reward = "0"] = /^Reward:\n(.*)\n/.exec(dialogue[i + 1]?.content ?? "") ?? [];
      answered.push({
        ...(now as NonNullable<History["now"]>),
        reply: content,
        actions: actionsIn(tag, content, think).known,
        reward: Number(reward),
      });
      now = null;
    }
  });
  return { answered, now };
}

/** The actions that a reply names, and the named actions that the env knows. */
export function actionsIn(
  tag: EnvTag,
  reply: string,
  think: boolean,
): { readonly named: readonly string[]; readonly known: string[] } {
  const { actions: named } = parseReply(reply, { think, actionsPerTurnMax: Number.POSITIVE_INFINITY });
  // A bandit's prompt lists no actions; its state names the arms.
  const listed = tag.type === "bandit" ? armsOf(tag) : tag.wording.actions;
  const names = listed?.map((name) => name.toLowerCase());
  return { named, known: named.filter((name) => names?.includes(name.toLowerCase()) ?? true) };
}

function armsOf(tag: EnvTag): readonly string[] {
  const game = tag.open({ layout: 0, dynamics: 0 });
  return game.kind === "discrete" ? game.actions : [];
}

/**
 * Messages as ChatML, the text that a Qwen policy continues.
 *
 * @param prefix  the forced beginning of the reply; null for a finished dialogue.
 */
export function chatml(messages: readonly Message[], prefix: "<think>" | "<answer>" | null): string {
  const turns = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("");
  return prefix === null ? turns : `${turns}<|im_start|>assistant\n${prefix}`;
}

const X7 = z.object({
  history: z.array(
    z.object({
      state: z.string(),
      actions_left: z.number(),
      llm_response: z.string().optional(),
      manager_invalid_action: z.boolean().optional(),
    }),
  ),
  max_context_window: z.number(),
  turn_idx: z.number(),
  history_start: z.number(),
  include_warning: z.boolean(),
  content: z.string(),
  content_turn_0: z.string(),
});

export function alfworldMemories(body: unknown): Check[] {
  const { history, max_context_window, turn_idx, history_start, include_warning, ...expected } = X7.parse(body);
  const turns = history.map(({ state, actions_left, llm_response, manager_invalid_action }) => ({
    observation: state,
    actionsLeft: actions_left,
    reply: llm_response ?? "",
    noValidAction: (include_warning && manager_invalid_action) ?? false,
  }));
  const memory = (turn: number) =>
    alfworldMemory(turns.slice(0, turn), turns[turn]!, {
      from: Math.max(history_start, max_context_window === -1 ? 0 : turn - max_context_window + 1),
      replyWordsHint: 512,
      think: true,
    });
  return [
    { name: `turn ${turn_idx}`, expected: expected.content, got: memory(turn_idx) },
    { name: "turn 0", expected: expected.content_turn_0, got: memory(0) },
  ];
}
