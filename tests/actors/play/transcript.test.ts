/** The tokens that a policy sees before each turn: in all three contexts, and when a context is too long; and the sequences that are trained on. */
import { describe, expect, test } from "bun:test";
import { type ContextRules, Transcript } from "../../../actors/play/transcript.ts";
import { envTag } from "../../../envs/registry.ts";
import { samplesOf } from "../../../model/learn/sequences.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const dialogue = builtinDialogue(tokenizer);
const tag = envTag("SimpleSokoban", {});
const END = tokenizer.id("<|im_end|>");
const rules: ContextRules = {
  layout: "compact",
  compat: false,
  think: false,
  context: "full",
  contextTurnsMax: null,
  overflow: "stop",
  replyTokensMax: 24,
  contextTokensMax: 1000,
};
/** Boards that differ. */
const board = (turn: number) => `######\n#P${"_".repeat(turn % 3)}X${"_".repeat(2 - (turn % 3))}#\n######`;
const ACTIONS = ["Up", "Down", "Left", "Right", "Up", "Down"];

/** Plays so many turns. @returns the decoded context before each reply, and its prompts */
function play(changed: Partial<ContextRules>, turns: number, cut = -1) {
  const transcript = new Transcript(tag, dialogue, { ...rules, ...changed });
  const shown: { text: string; keep: number; start: number; prompt: readonly number[]; dropped: number }[] = [];
  let sequence: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const question = transcript.addPrompt(board(turn), 10 - turn);
    if (question === null) break;
    const { keep, prompt, start } = question;
    sequence = [...sequence.slice(0, keep), ...prompt];
    shown.push({ text: tokenizer.decode(sequence), keep, prompt, start, dropped: transcript.dropped });
    const action = ACTIONS[turn % ACTIONS.length]!;
    // Two tokens that encoding "Up" at once would not give: as a policy may well have it.
    const tokens = [...[...action].flatMap((letter) => tokenizer.encode(letter)), ...tokenizer.encode("</answer>")];
    if (turn !== cut) tokens.push(END);
    sequence.push(...tokens);
    const logProbs = tokens.map((_, i) => -(i + 1) / 16);
    transcript.addTurn({ tokens, logProbs, cut: turn === cut }, { reward: turn, penalty: 0, actions: [action] });
  }
  return { shown, trajectory: transcript.trajectory(), texts: shown.map(({ text }) => text) };
}

const asked = (turn: number) => `<|im_start|>${10 - turn} left ${tag.brief(board(turn))}<|im_end|><answer>`;
const replied = (turn: number) => `${ACTIONS[turn]}</answer><|im_end|>`;
const dialogueOf = (from: number, turn: number) =>
  Array.from({ length: turn - from }, (_, i) => asked(from + i) + replied(from + i)).join("") + asked(turn);

describe("the full context", () => {
  test("is one that grows: every turn is appended, and nothing is shown twice", () => {
    const { texts, trajectory, shown } = play({}, 4);
    expect(texts).toEqual([0, 1, 2, 3].map((turn) => dialogueOf(0, turn)));
    expect(shown.map(({ start, prompt }) => [start, tokenizer.decode([...prompt])])).toEqual(
      [0, 1, 2, 3].map((turn) => [0, asked(turn)]),
    );
    expect(trajectory.contexts).toEqual([0]);
    expect(tokenizer.decode([...trajectory.tokens])).toBe(dialogueOf(0, 3) + replied(3));
  });

  test("closes a cut reply with a token that the policy did not write", () => {
    const { texts, trajectory } = play({}, 2, 0);
    expect(texts[1]).toBe(`${asked(0)}Up</answer><|im_end|>${asked(1)}`);
    const end = trajectory.turns[0]!.end;
    expect([trajectory.tokens[end + 1], trajectory.written[end + 1]]).toEqual([END, 0]);
  });
});

describe("a limited context", () => {
  const limited = { context: "limited_multi_turn", contextTurnsMax: 2 } as const;

  test("is a dialogue of the last turns, each reply in it as it was sampled", () => {
    const { texts, trajectory, shown } = play(limited, 4);
    expect(texts).toEqual([0, 1, 2, 3].map((turn) => dialogueOf(Math.max(0, turn - 1), turn)));
    // The second turn extends the first's context; from then on the window slides, and each has its own.
    const starts = shown.map(({ start }) => start);
    expect(starts[1]).toBe(0);
    expect(trajectory.contexts).toEqual([0, starts[2]!, starts[3]!]);
    // Letters, not words: what was written is found again in later contexts, id by id.
    const [, second] = samplesOf(trajectory);
    const own = tokenizer.encode("D").concat(tokenizer.encode("o"));
    expect(second!.tokens.join()).toContain(own.join());
  });

  test("learns each reply once, in the context it was written in", () => {
    const { trajectory } = play(limited, 5);
    const samples = samplesOf(trajectory);
    const said = samples.map(({ tokens, written }) => tokenizer.decode([...written].map((at) => tokens[at]!)));
    expect(said).toEqual([replied(0) + replied(1), replied(2), replied(3), replied(4)]);
    expect(trajectory.turns.map(({ reward }) => reward)).toEqual([0, 1, 2, 3, 4]);
    for (const { end } of trajectory.turns) expect([trajectory.tokens[end], trajectory.written[end]]).toEqual([END, 1]);
    expect([...trajectory.logProbs].every((logProb, i) => logProb < 0 === (trajectory.written[i] === 1))).toBe(true);
  });

  test("of all turns is the full one", () => {
    expect(play({ context: "limited_multi_turn" }, 4)).toEqual(play({}, 4));
  });

  test("keeps the cache of what does not change: RAGEN's system message", () => {
    const { shown, texts } = play({ ...limited, layout: "ragen-v2", contextTokensMax: 10_000 }, 4);
    const system = /^<\|im_start\|>(system\n.*?)<\|im_end\|>/s.exec(texts[0]!)![1]!;
    expect(system).toContain("Sokoban");
    for (const { keep } of shown.slice(2)) expect(keep).toBeGreaterThan(tokenizer.encode(system).length);
  });
});

describe("a context of one message", () => {
  test("sums up the last turns in the built-in policy's words", () => {
    const { texts, trajectory } = play({ context: "single_turn", contextTurnsMax: 2 }, 3);
    const told = (turn: number) => `${10 - turn} left ${tag.brief(board(turn))}`;
    expect(texts).toEqual([
      asked(0),
      `<|im_start|>${told(0)} Up\n${told(1)}<|im_end|><answer>`,
      `<|im_start|>${told(1)} Down\n${told(2)}<|im_end|><answer>`,
    ]);
    expect(trajectory.contexts.length).toBe(3);
  });

  test("sums up as RAGEN-2's SimpleMemory", () => {
    const { texts } = play({ context: "single_turn", layout: "ragen-v2", contextTokensMax: 10_000 }, 3);
    expect(texts[2]).toContain(
      "Summary: 2 step(s) completed so far. Showing the last 2 turn(s) with state/action/reward",
    );
    expect(texts[2]).toContain(`Turn 2 State:\n${board(1)}\nTurn 2 Action: <answer>Down</answer>\nTurn 2 Reward: 1\n`);
    expect(texts[2]!.match(/<\|im_start\|>/g)!.length).toBe(2);
  });
});

describe("a context that is too long", () => {
  const small = { contextTokensMax: play({}, 3).trajectory.tokens.length, replyTokensMax: 16 };

  test("ends the episode where the rules say stop", () => {
    const { texts } = play(small, 6);
    expect(texts.length).toBeGreaterThan(1);
    expect(texts.length).toBeLessThan(6);
  });

  test("loses its oldest turns where they say drop, whole, and counts them", () => {
    const { texts, shown, trajectory } = play({ ...small, overflow: "drop" }, 6);
    expect(texts.length).toBe(6);
    expect(texts).toEqual(shown.map(({ dropped }, turn) => dialogueOf(dropped, turn)));
    const dropped = shown.map((one) => one.dropped);
    expect(dropped[1]).toBe(0);
    expect(dropped).toEqual(dropped.toSorted((a, b) => a - b));
    expect(dropped.at(-1)).toBeGreaterThan(1);
    expect(trajectory.contexts.length).toBe(new Set(dropped).size);
    for (const { tokens } of samplesOf(trajectory)) expect(tokens.length).toBeLessThanOrEqual(small.contextTokensMax);
  });

  test("ends the episode all the same where a single question has no room", () => {
    expect(play({ contextTokensMax: 10, overflow: "drop" }, 2).texts).toEqual([]);
  });
});

test("the coins of no two tokens are one: a sequence's first token has its own index in the episode", () => {
  const { shown, trajectory } = play({ context: "limited_multi_turn", contextTurnsMax: 1 }, 4);
  let at = 0;
  for (const { start, keep, prompt } of shown) {
    // Without history each question is all there is of its context.
    expect([start, tokenizer.decode([...trajectory.tokens.subarray(start, start + keep + prompt.length)])]).toEqual([
      at,
      asked(shown.findIndex((one) => one.start === start)),
    ]);
    at = trajectory.turns[shown.findIndex((one) => one.start === start)]!.end + 1;
  }
});

describe("compat", () => {
  /** Contexts before each reply, and the trajectory, of an agent that writes these replies behind `<answer>`. */
  function untidy(changed: Partial<ContextRules>, replies: readonly string[], actionsPerTurnMax = 2) {
    const transcript = new Transcript(tag, dialogue, { ...rules, compat: true, ...changed }, actionsPerTurnMax);
    let sequence: number[] = [];
    const texts = replies.map((reply, turn) => {
      const { keep, prompt } = transcript.addPrompt(board(turn), 10 - turn)!;
      const tokens = [...tokenizer.encode(reply), END];
      sequence = [...sequence.slice(0, keep), ...prompt];
      const text = tokenizer.decode(sequence);
      sequence.push(...tokens);
      const logProbs = tokens.map(() => -1);
      transcript.addTurn({ tokens, logProbs, cut: false }, { reward: 0, penalty: 0, actions: ["Up"] });
      return text;
    });
    return { texts, samples: samplesOf(transcript.trajectory()), trajectory: transcript.trajectory() };
  }

  const replies = ["  Up ||Down|| Left</answer> and so on", "Up</answer>", "no end", "Up</answer>"];

  test("shows a reply to later turns as RAGEN rebuilds it, and an unreadable one as it is", () => {
    const { texts } = untidy({}, replies);
    const shown = ["Up || Down</answer><|im_end|>", "Up</answer><|im_end|>", "no end<|im_end|>"];
    expect(texts).toEqual(
      replies.map(
        (_, turn) =>
          shown
            .slice(0, turn)
            .map((reply, i) => asked(i) + reply)
            .join("") + asked(turn),
      ),
    );
  });

  test("trains on the replies that were sampled, each once; tidy ones extend their context", () => {
    const { samples, trajectory } = untidy({}, replies);
    const written = samples.map(({ tokens, written }) => tokenizer.decode([...written].map((at) => tokens[at]!)));
    const [first, ...rest] = replies.map((reply) => `${reply}<|im_end|>`);
    expect(written).toEqual([first!, rest.join("")]);
    expect(trajectory.contexts.length).toBe(2);
  });

  test("quotes the rebuilt reply in a summary", () => {
    const { texts } = untidy(
      { context: "single_turn", layout: "ragen-v2", contextTokensMax: 10_000 },
      replies.slice(0, 2),
    );
    expect(texts[1]).toContain("Turn 1 Action: <answer>Up || Down</answer>\n");
  });

  test("alone rebuilds: without it every reply is shown as it was sampled", () => {
    const { texts, trajectory } = untidy({ compat: false }, replies);
    expect(texts[1]).toContain(replies[0]!);
    expect(trajectory.contexts.length).toBe(1);
  });
});
