/** Steps of a decoder, by slot. */
import type { Decoder } from "../../../model/decode/decoder.ts";

/**
 * Appends a token to the sequence of each slot.
 *
 * @param tokens  the token of each slot; a negative number leaves the slot unchanged
 * @returns (slots, V) logits in new memory; 0 for a slot without a token
 */
export async function stepSlots(decoder: Decoder, tokens: readonly number[], vocabulary = 24): Promise<Float32Array> {
  const slots = [...tokens.keys()].filter((slot) => tokens[slot]! >= 0);
  const { logits, places } = await decoder.step(
    slots,
    slots.map((slot) => tokens[slot]!),
  );
  const all = new Float32Array(tokens.length * vocabulary);
  for (const [i, slot] of slots.entries())
    all.set(logits.subarray(places[i], places[i]! + vocabulary), slot * vocabulary);
  return all;
}
