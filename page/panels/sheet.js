// The text under the box: each character is shaded by its surprise, or by the attention that the chosen one pays to it.

import { make, strength } from "./elements.js";

const MOST_BITS = 8; // of surprise, for the strongest colour
const NEAR_PX = 40; // more than a line

export class Sheet {
  // valueOf(by, character): the surprise, or the weight of attention, of a character of the text, or null.
  constructor(root, valueOf) {
    Object.assign(this, { root, valueOf, spans: [], first: 0, chosen: 0 });
    this.scroller = root.querySelector(".sheet");
    this.text = root.querySelector(".text");
    this.text.replaceChildren();
    this.lines = this.text.appendChild(make("div")).appendChild(new Text()); // those without shades
    this.before = this.text.appendChild(new Text()); // the rest without shades
    this.buttons = [...root.querySelectorAll(".shading button")];
    for (const button of this.buttons) button.onclick = () => this.shadeBy(button.dataset.by);
    this.shadeBy("surprise");
  }

  // Shows a text; only the characters from `first` on have shades. unknown: the places that the model does not know.
  show(characters, first, unknown) {
    this.first = first;
    const before = characters.slice(0, first).join("");
    const nextLine = before.lastIndexOf("\n") + 1;
    // The browser need not lay out the lines in an element of their own again, if they are the same.
    if (this.lines.data !== before.slice(0, nextLine)) this.lines.data = before.slice(0, nextLine);
    this.before.data = before.slice(nextLine);
    this.spans.forEach((span) => span.remove());
    this.spans = characters.slice(first).map((c) => make("span", c));
    this.text.append(...this.spans);
    unknown.forEach((place) => this.spans[place - first].classList.add("unknown"));
  }

  isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - NEAR_PX;
  }

  // Scrolls to the character before a caret, whose place is in UTF-16 units, as in the box.
  reveal(caret) {
    let left = caret;
    let piece;
    for (piece of [this.lines, this.before, ...this.spans.map((span) => span.firstChild)]) {
      if (left <= piece.length) break;
      left -= piece.length;
    }
    const range = document.createRange();
    range.setStart(piece, Math.max(0, left - 1));
    range.setEnd(piece, left);
    const [frame, place] = [this.scroller, range].map((each) => each.getBoundingClientRect());
    const above = place.top - NEAR_PX - frame.top;
    const below = place.bottom + NEAR_PX - frame.bottom;
    this.scroller.scrollTop += Math.min(above, 0) + Math.max(below, 0);
  }

  shadeBy(by) {
    this.root.dataset.by = by;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.by === by));
    this.shade(this.chosen);
  }

  shade(chosen) {
    this.chosen = chosen;
    const by = this.root.dataset.by;
    const shadeOf = by === "surprise" ? (bits) => Math.min(0.9, (0.9 * bits) / MOST_BITS) : strength;
    this.spans.forEach((span, i) => {
      const value = this.valueOf(by, this.first + i) ?? 0;
      span.style.setProperty("--w", `${100 * shadeOf(value)}%`);
      span.classList.toggle("query", this.first + i === chosen);
    });
  }

  // Returns the character at a place of the window, or -1.
  at({ clientX, clientY }) {
    const elements = document.elementsFromPoint(clientX, clientY);
    const i = this.spans.findIndex((span) => elements.includes(span));
    return i < 0 ? -1 : this.first + i;
  }
}

// Returns the middle of the last long line: a character that has something to look back at.
export function middleOfLine(text) {
  const starts = [...text.keys()].filter((i) => i === 0 || text[i - 1] === "\n");
  const lines = starts.map((first, n) => ({ first, last: (starts[n + 1] ?? text.length) - 1 }));
  const lengthOf = ({ first, last }) => last - first;
  const longest = Math.max(...lines.map(lengthOf));
  const { first, last } = lines.findLast((line) => lengthOf(line) >= longest / 2);
  const middle = Math.floor((first + last) / 2);
  return text.findIndex((character, i) => i >= middle && (/\S/.test(character) || i === last));
}
