/**
 * A made-up world for SearchQAMock: books, their authors, the authors' birthplaces and the rivers there. A question takes two
 * or three searches. No model can know the answers without a search. The world is the same in every process.
 */
import type { SearchQuestion } from "./game.ts";

const FIRST = ["Alda", "Benno", "Corvin", "Dagny", "Edda", "Falk", "Gesine", "Hauke", "Ilka", "Jorin", "Keno", "Lioba"];
const LAST = ["Marwitz", "Ottersund", "Pellworm", "Quast", "Rantum"];
const TOWNS = [
  ["Aldersby", "Lune", "Norrland"],
  ["Brakholm", "Esse", "Norrland"],
  ["Cathmere", "Tarn", "Westmark"],
  ["Dunvik", "Orle", "Westmark"],
  ["Elmstad", "Wyre", "Sudania"],
  ["Fenrick", "Ister", "Sudania"],
  ["Garlund", "Aune", "Ostrava Reach"],
  ["Hollin", "Brede", "Ostrava Reach"],
  ["Ivenburg", "Calla", "Norrland"],
  ["Jarnsund", "Dove", "Westmark"],
] as const;
const COLORS = ["Amber", "Blue", "Crimson", "Grey", "Ivory", "Scarlet"];
const THINGS = ["Lantern", "Harbour", "Orchard", "Compass", "Mirror", "Bridge", "Winter", "Garden", "Letter", "Window"];

const PEOPLE = LAST.flatMap((last) => FIRST.map((first) => `${first} ${last}`));
const BOOKS = THINGS.flatMap((thing) => COLORS.map((color) => `The ${color} ${thing}`));

/**
 * Sixty authors with one book each, six authors from each town. Steps of 7 in the list of books reach all 60 books; steps of 3 in the list of
 * towns reach all 10 towns.
 */
const AUTHORS = PEOPLE.map((person, i) => ({
  person,
  book: BOOKS[(i * 7 + 3) % BOOKS.length]!,
  town: TOWNS[(i * 3 + 1) % TOWNS.length]!,
}));

export const villageDocuments: readonly string[] = [
  ...AUTHORS.map(({ person, book }) => `${book} is a novel written by ${person}.`),
  ...AUTHORS.map(({ person, town: [town] }) => `${person} is a writer who was born in the town of ${town}.`),
  ...TOWNS.map(([town, river, country]) => `${town} is a town on the river ${river} in ${country}.`),
];

export const villageQuestions: readonly SearchQuestion[] = AUTHORS.flatMap(({ book, town: [town, river, country] }) => [
  { question: `In which town was the author of ${book} born?`, answers: [town] },
  { question: `On which river lies the birthplace of the author of ${book}?`, answers: [river] },
  { question: `In which country was the author of ${book} born?`, answers: [country] },
]);
