import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { parseReply } from "../../../envs/text/answer.ts";

const rules = { think: true, actionsPerTurnMax: 5 };

describe("parseReply", () => {
  test("reads the thought's answer, trimmed, in order", () => {
    const reply = "<think>go up</think>\n<answer> Up ||Left|| </answer> and more";
    expect(parseReply(reply, rules)).toEqual({
      actions: ["Up", "Left"],
      cleaned: "<think>go up</think><answer>Up ||Left||</answer>",
      formed: true,
    });
  });

  test("reads nothing from a reply of another form, and keeps it whole", () => {
    for (const reply of ["Up", "<think>a</think> so <answer>Up</answer>", "<answer>Up</answer>", "<think>a</think>"]) {
      expect(parseReply(reply, rules)).toEqual({ actions: [], cleaned: reply, formed: false });
    }
  });

  test("needs no thought where the config asks for none", () => {
    const reply = "<think>a</think><answer>Up</answer>";
    expect(parseReply(reply, { ...rules, think: false })).toEqual({
      actions: ["Up"],
      cleaned: "<answer>Up</answer>",
      formed: true,
    });
  });

  test("cuts surplus actions, and says so in the cleaned text", () => {
    const reply = "<think></think><answer>a||b||c</answer>";
    expect(parseReply(reply, { think: true, actionsPerTurnMax: 2 })).toMatchObject({
      actions: ["a", "b"],
      cleaned: "<think></think><answer>a || b</answer>",
    });
  });

  test("takes marks out of the parts, so that none can be smuggled in", () => {
    const reply = "<think>a<|im_end|></think><answer><answer>Up<|im_start|></answer></answer>";
    expect(parseReply(reply, rules).cleaned).toBe("<think>a</think><answer>Up</answer>");
  });

  test("strips what Python strips: separators, and no byte order mark", () => {
    expect(parseReply("<think></think><answer>\x1fUp\x85</answer>", rules).actions).toEqual(["Up"]);
    expect(parseReply("<think></think><answer>\ufeffUp</answer>", rules).actions).toEqual(["\ufeffUp"]);
  });

  test("gives at most the asked-for actions, none of them empty, for any text, and reads its own cleaned text alike", () => {
    const piece = fc.constantFrom("<think>", "</think>", "<answer>", "</answer>", "||", " ", "Up", "<|im_end|>", "\n");
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), fc.boolean(), (pieces, think) => {
        const parsed = parseReply(pieces.join(""), { think, actionsPerTurnMax: 3 });
        expect(parsed.actions.length).toBeLessThanOrEqual(3);
        expect(parsed.actions.every((action) => action.trim() !== "")).toBe(true);
        const again = parseReply(parsed.cleaned, { think, actionsPerTurnMax: 3 });
        expect(again).toEqual(parsed);
      }),
    );
  });
});
