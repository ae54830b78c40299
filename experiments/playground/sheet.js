// The text under the box: each character is shaded by its surprise, or by the attention that the chosen one pays to it.

const MOST_BITS = 8; // of surprise, for the darkest shade

class Sheet {
  // valueOf(by, character): the surprise, or the weight of attention, of a character of the text, or null.
  constructor(root, valueOf) {
    Object.assign(this, { root, valueOf, spans: [], first: 0, chosen: 0 });
    this.buttons = [...root.querySelectorAll(".shading button")];
    for (const button of this.buttons) button.onclick = () => this.shadeBy(button.dataset.by);
    this.shadeBy("surprise");
  }

  // Shows a text; only the characters from `first` on have shades.
  show(characters, first) {
    this.first = first;
    this.spans = characters.slice(first).map((c) => make("span", c));
    this.root.querySelector(".text").replaceChildren(characters.slice(0, first).join(""), ...this.spans);
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
function middleOfLine(text) {
  const starts = [...text.keys()].filter((i) => i === 0 || text[i - 1] === "\n");
  const lines = starts.map((first, n) => ({ first, last: (starts[n + 1] ?? text.length) - 1 }));
  const lengthOf = ({ first, last }) => last - first;
  const longest = Math.max(...lines.map(lengthOf));
  const { first, last } = lines.findLast((line) => lengthOf(line) >= longest / 2);
  const middle = Math.floor((first + last) / 2);
  return text.findIndex((character, i) => i >= middle && (/\S/.test(character) || i === last));
}
