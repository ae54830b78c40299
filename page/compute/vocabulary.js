// The vocabulary of a model as the page shows it: what a text box can hold, and how each character is named.

const RETURN = "␍"; // stands for a carriage return, which a box cannot hold
const BLANKS = { " ": "␣", "\n": "⏎", "\r": RETURN, "\t": "⇥" };
const INVISIBLE = /[\p{C}\p{Z}]/u;
// Blocks of letters that would change the order of the others, without marks and the digits of Arabic.
const RIGHT_TO_LEFT =
  /(?![\p{M}\u0660-\u0669\u06f0-\u06f9])[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

const codePointOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// Returns a visible label of a character.
export function visible(character) {
  const isPlain = !INVISIBLE.test(character) && !RIGHT_TO_LEFT.test(character);
  return BLANKS[character] ?? (isPlain ? character : codePointOf(character));
}

// Returns a text as the box holds it, in as many characters: a sign stands for each carriage return or, if line feeds are
// not among the known characters, a line feed.
export function inBox(text, known) {
  return text.replaceAll("\r", known.includes("\n") ? RETURN : "\n");
}

// Returns what the page knows of a model's characters, given in the order of their ids. characters: as the box holds
// them. labels: of each. alike: for each character that looks like a known one, that one. start: what an empty text
// begins with. lookAlikes: of data/vocabulary.py.
export function vocabularyOf(known, lookAlikes) {
  const alike = {};
  for (const kind of lookAlikes) {
    const plain = [...kind].find((character) => known.includes(character)); // the plainest comes first
    for (const character of plain ? kind : "") if (!known.includes(character)) alike[character] = plain;
  }
  const start = known.includes("\n") ? "\n" : [...known][0];
  return { characters: inBox(known, known), labels: [...known].map(visible), alike, start: inBox(start, known) };
}
