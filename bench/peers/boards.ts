/** Prints boards of SimpleSokoban as JSON for programs outside Bunraku: boards for training, for validation (RAGEN's), and for choosing settings. */

import { envTag } from "../../envs/registry.ts";
import { openLocal } from "../../envs/tag.ts";

const SimpleSokoban = envTag("SimpleSokoban");
const boards = (first: number, count: number) =>
  Array.from({ length: count }, (_, i) => openLocal(SimpleSokoban, { layout: first + i, dynamics: 0 }).render());

console.log(
  JSON.stringify({ training: boards(10_000, 20_000), validation: boards(123, 256), choosing: boards(500_000, 512) }),
);
