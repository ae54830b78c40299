// The text under the box: each character is shaded by its surprise, or by the attention that the chosen one pays to it.

import { make, strength } from "./elements.js";

const MOST_SURPRISE = 5.5; // for the strongest colour
const NEAR_PX = 40; // more than a line

export class Sheet {
  // valueOf(by, character): the surprise, or the weight of attention, of a character of the text, or null.
  constructor(root, valueOf) {
    Object.assign(this, { root, valueOf, spans: [], first: 0, chosen: 0 });
    this.scroller = root.querySelector(".sheet");
    this.text = root.querySelector(".text");
    this.text.replaceChildren();
    this.before = this.text.appendChild(new Text()); // what has no shades
    this.buttons = [...root.querySelectorAll(".shading button")];
    for (const button of this.buttons) button.onclick = () => this.shadeBy(button.dataset.by);
    this.shadeBy("surprise");
  }

  // Shows a text; only the characters from `first` on have shades. unknown: the places that the model does not know.
  show(characters, first, unknown) {
    this.first = first;
    this.before.data = characters.slice(0, first).join("");
    this.spans.forEach((span) => span.remove());
    this.spans = characters.slice(first).map((c) => make("span", c));
    this.text.append(...this.spans);
    unknown.forEach((place) => this.spans[place - first].classList.add("unknown"));
  }

  isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - NEAR_PX;
  }

  showEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  shadeBy(by) {
    this.root.dataset.by = by;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.by === by));
    this.shade(this.chosen);
  }

  shade(chosen) {
    this.chosen = chosen;
    const by = this.root.dataset.by;
    const shadeOf = by === "surprise" ? (surprise) => Math.min(0.9, (0.9 * surprise) / MOST_SURPRISE) : strength;
    this.spans.forEach((span, i) => {
      const value = this.valueOf(by, this.first + i) ?? 0;
      span.style.setProperty("--w", `${100 * shadeOf(value)}%`);
      span.classList.toggle("query", this.first + i === chosen);
    });
  }
}
