// The text under the box: each character is shaded by its surprise, or by the attention that the chosen one pays to it.

const MOST_BITS = 8; // of surprise, for the darkest shade

class Sheet {
  // valueOf(by, character): the surprise, or the weight of attention, of a character of the text, or null.
  constructor(root, valueOf) {
    Object.assign(this, { root, valueOf, spans: [], first: 0, chosen: 0 });
    this.buttons = [...root.querySelectorAll(".shading button")];
    this.buttons.forEach((button) => (button.onclick = () => this.shadeBy(button.dataset.by)));
    this.shadeBy("surprise");
  }

  // Shows a text; only the characters from `first` on have shades.
  show(characters, first) {
    this.first = first;
    this.spans = characters.slice(first).map((c) => make("span", c));
    const before = characters.slice(0, first).join(""),
      end = before.lastIndexOf("\n") + 1;
    const [lines, text] = this.root.querySelectorAll(".before, .text");
    if (lines.textContent !== before.slice(0, end)) lines.textContent = before.slice(0, end); // a long text is slow to lay out
    text.replaceChildren(before.slice(end), ...this.spans);
  }

  shadeBy(by) {
    this.root.dataset.by = by;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.by === by));
    this.shade(this.chosen);
  }

  shade(chosen) {
    this.chosen = chosen;
    const by = this.root.dataset.by;
    this.spans.forEach((span, i) => {
      const value = this.valueOf(by, this.first + i) ?? 0;
      span.style.setProperty(
        "--w",
        `${100 * (by === "surprise" ? Math.min(0.9, (0.9 * value) / MOST_BITS) : strength(value))}%`,
      );
      span.classList.toggle("query", this.first + i === chosen);
    });
  }

  // Returns the character at a place of the window, or -1.
  at({ clientX, clientY }) {
    const i = this.spans.indexOf(
      document.elementsFromPoint(clientX, clientY).find((element) => this.spans.includes(element)),
    );
    return i < 0 ? -1 : this.first + i;
  }
}

// The middle of the last long line: a character that has something to look back at.
function middleOfLine(text) {
  const lines = [];
  text.forEach((c, i) => (i === 0 || text[i - 1] === "\n" ? lines.push([i, i]) : (lines.at(-1)[1] = i)));
  const longest = Math.max(...lines.map(([first, last]) => last - first));
  const [first, last] = lines.findLast(([first, last]) => last - first >= longest / 2);
  return text.findIndex((c, i) => i >= Math.floor((first + last) / 2) && (/\S/.test(c) || i === last));
}
