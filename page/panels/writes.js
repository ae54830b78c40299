// What models write: a line for each doubling of the characters that they have read, from noise to words.

import { byId, inShort, make } from "./elements.js";

const FEWEST = 10_000; // characters before the second line stays

export class Writes {
  // titles: of the models, one or two.
  constructor(titles) {
    this.rows = []; // { characters, texts }
    const head = titles.length > 1 ? [make("tr", [make("td"), ...titles.map((title) => make("th", title))])] : [];
    byId("samples").replaceChildren(...head);
    byId("samples").classList.toggle("pair", titles.length > 1);
  }

  // Shows what the models write after so many characters, in place of the line before if that is not half as far.
  show(characters, texts) {
    const [before, last] = [this.rows.at(-2), this.rows.at(-1)];
    const isOld = before && last.characters < Math.max(FEWEST, 2 * before.characters);
    if (isOld || last?.characters === characters) {
      this.rows.pop();
      byId("samples").lastChild.remove();
    }
    this.rows.push({ characters, texts });
    const cells = texts.map((text) => make("td", text.trim(), { className: "text" }));
    byId("samples").append(make("tr", [make("th", inShort(characters), { scope: "row" }), ...cells]));
    byId("samples").closest(".rows").scrollTop = 1e6; // the newest is in sight
  }
}
