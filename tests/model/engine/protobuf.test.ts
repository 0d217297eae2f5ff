/** Protobuf messages: what is written is read again. */
import { expect, test } from "bun:test";
import { scalarEvent, scalarsOf } from "../../../actors/record/tensorboard.ts";
import { fieldsOf, ProtobufMessage } from "../../../model/engine/protobuf.ts";

test.each([0, 1, 127, 128, 300, 2 ** 31, 2 ** 53 - 1, -1, -2, -300, -(2 ** 31), -(2 ** 53 - 1)])(
  "the number %p is read as it was written",
  (value) => {
    const message = new ProtobufMessage().int(1, value).int(2, 7).finish();
    expect([...fieldsOf(message)]).toEqual([
      [1, value],
      [2, 7],
    ]);
  },
);

test("a scalar of TensorBoard may have a negative step, as that of a measurement before the training", () => {
  expect([...scalarsOf(scalarEvent(0, -1, [["a", 0.5]]))]).toEqual([{ step: -1, tag: "a", value: 0.5 }]);
});

test("a message that is cut within a number, or has a number of more than ten bytes, is refused", () => {
  const refused = "a number of a protobuf message has no end";
  expect(() => [...fieldsOf(Uint8Array.of(8, 128))]).toThrow(new RangeError(refused));
  expect(() => [...fieldsOf(new Uint8Array(12).fill(128).fill(8, 0, 1))]).toThrow(new RangeError(refused));
});
