import { expect, spyOn, test } from "bun:test";
import { progressLine } from "../../../scripts/eval/report.ts";

test("where there is no terminal, at most four lines say how far it is, the last one at the end", () => {
  const written = (episodes: number) => {
    let text = "";
    const spy = spyOn(process.stderr, "write").mockImplementation((part) => {
      text += part;
      return true;
    });
    const progress = progressLine(episodes);
    for (let played = 1; played <= episodes; played++) progress(played, 1);
    spy.mockRestore();
    return text.match(/played \d+/g)!.map((words) => Number(words.split(" ")[1]));
  };
  expect([written(8), written(10), written(2)]).toEqual([
    [2, 4, 6, 8],
    [3, 6, 9, 10],
    [1, 2],
  ]);
});
