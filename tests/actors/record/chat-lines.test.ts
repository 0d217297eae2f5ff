/** Episodes as lines for supervised fine-tuning: what stands before each reply, and which replies are learned. */
import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { Transcript } from "../../../actors/play/transcript.ts";
import type { PlayedOutcome } from "../../../actors/protocol.ts";
import { type ChatMessage, chatsOf } from "../../../actors/record/chat-lines.ts";
import { envTag } from "../../../envs/registry.ts";
import { samplesOf } from "../../../model/learn/sequences.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const tag = envTag("SimpleSokoban", {});

/** The chats of an episode in which the agent walks one way each turn, or says nothing that can be read; and its contexts as text. */
function exported(prompt: object, moves: readonly string[], contextTokensMax = 10_000) {
  const layers = [{ source: "test", values: { prompt, env: { think: false }, warmStart: { enabled: false } } }];
  const config = composeRunConfig(layers);
  const rules = {
    ...config.prompt,
    compat: config.prompt.compat !== "strict",
    think: false,
    replyTokensMax: 40,
    contextTokensMax,
  };
  const transcript = new Transcript(tag, builtinDialogue(tokenizer), rules);
  const turns = moves.map((move, turn) => {
    const observation = `#####\n#${"_".repeat(turn)}P${"_".repeat(2 - turn)}#\n#####`;
    const played = moves.slice(0, turn).filter((earlier) => earlier !== "").length;
    expect(transcript.addPrompt(observation, 10 - played)).not.toBeNull();
    const tokens = [...tokenizer.encode(`${move}</answer>`), tokenizer.id("<|im_end|>")];
    const actions = move === "" ? [] : [move];
    const logProbs = tokens.map(() => 0);
    transcript.addTurn({ tokens, logProbs, cut: false }, { reward: 0, penalty: 0, actions });
    const reply = `<answer>${move}</answer>`;
    return { observation, reply, actions, reward: 0, penalty: 0, dropped: transcript.dropped };
  });
  const trajectory = { ...transcript.trajectory(), version: 0, digest: "" };
  const contexts = samplesOf(trajectory).map(({ tokens }) => tokenizer.decode([...tokens]));
  const chats = chatsOf({ turns, trajectory } as Pick<PlayedOutcome, "turns" | "trajectory">, tag, config, config.env);
  return { chats, contexts };
}
const chats = (prompt: object, moves: readonly string[]) => exported(prompt, moves).chats;

const told = (turn: number, left: number) =>
  `${left} left ${tag.brief(`#####\n#${"_".repeat(turn)}P${"_".repeat(2 - turn)}#\n#####`)}`;
const asked = (turn: number): ChatMessage => ({ role: "user", content: told(turn, 10 - turn) });
const replied = (move: string): ChatMessage => ({ role: "assistant", content: `<answer>${move}</answer>` });
const again = (move: string): ChatMessage => ({ ...replied(move), weight: 0 });
const ALL = ["Up", "Down", "Left"] as const;

test("a full context is one chat, every reply of which is learnt", () => {
  const all = ALL.flatMap((move, turn) => [asked(turn), replied(move)]);
  expect(chats({}, ALL)).toEqual([all]);
});

test("a context of two turns shows the earlier turn with weight 0", () => {
  expect(chats({ context: "limited_multi_turn", contextTurnsMax: 2 }, ALL)).toEqual([
    [asked(0), replied("Up"), asked(1), replied("Down")],
    [asked(1), again("Down"), asked(2), replied("Left")],
  ]);
});

test("a context of the present turn: each turn is a chat, with nothing before it", () => {
  const alone = ALL.map((move, turn) => [asked(turn), replied(move)]);
  expect(chats({ context: "limited_multi_turn", contextTurnsMax: 1 }, ALL)).toEqual(alone);
});

test("a context that is full drops its oldest turn, which a new chat then lacks", () => {
  // Room for a turn, the next prompt and a reply of 40 tokens; not for two turns more.
  const { chats: found } = exported({ overflow: "drop" }, ALL, 65);
  expect(found).toEqual([
    [asked(0), replied("Up"), asked(1), replied("Down")],
    [asked(1), again("Down"), asked(2), replied("Left")],
  ]);
});

test("a limit that no episode reaches changes nothing", () => {
  expect(chats({ context: "limited_multi_turn", contextTurnsMax: 9 }, ALL)).toEqual(chats({}, ALL));
});

test("a summary: one message tells the last turns and what was done, and one reply follows", () => {
  expect(chats({ context: "single_turn", contextTurnsMax: 2 }, ALL)).toEqual([
    [asked(0), replied("Up")],
    [{ role: "user", content: `${told(0, 10)} Up\n${told(1, 9)}` }, replied("Down")],
    [{ role: "user", content: `${told(1, 9)} Down\n${told(2, 8)}` }, replied("Left")],
  ]);
});

test("a chat has the warning about a malformed reply exactly as the policy saw it", () => {
  for (const compat of ["strict", "ragen-v2"]) {
    const [messages] = chats({ layout: "ragen-v2", compat }, ["", "Up"]);
    expect(messages!.at(-2)!.content).toContain("No valid action provided previously.");
  }
});

test.each(
  ["strict", "ragen-v2"].flatMap((compat) => [
    { compat, context: "full" },
    { compat, context: "limited_multi_turn", contextTurnsMax: 2 },
    { compat, context: "single_turn", contextTurnsMax: 2 },
  ]),
)("RAGEN's layout, %j: a chat is what stood in the policy's context, letter by letter", (prompt) => {
  const opened = { system: "<|im_start|>system\n", user: "<|im_start|>", assistant: "" };
  // The second reply has a space that RAGEN strips.
  for (const second of ["", "Up || "]) {
    const { chats: written, contexts } = exported({ layout: "ragen-v2", ...prompt }, ["Up", second, "Left"]);
    const asText = written.map((messages) =>
      messages.map(({ role, content }) => `${opened[role]}${content}<|im_end|>`).join(""),
    );
    expect(asText).toEqual(contexts);
  }
});
