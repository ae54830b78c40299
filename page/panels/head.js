// The chosen head: its large map, where the chosen character looks, and the loss on the text without the head.

import { whenLeft } from "./curves.js";
import { byId, keepChildren, make, showBars, upTo } from "./elements.js";
import { drawMap } from "./inside.js";

const LISTED = 5; // characters that are looked at

export class Head {
  // choose(q): the user points at the row of a position. flip(part): the user switches a part off or on.
  constructor(choose, flip) {
    Object.assign(this, { choose, flip, place: null });
    const map = byId("map");
    map.onpointermove = map.onpointerdown = (event) => this.pointAtMap(event);
    whenLeft(map, () => {
      this.place = null;
      byId("place").textContent = "";
    });
  }

  // Shows head h of a model at position q.
  show(model, h, q) {
    if (model !== this.model || h !== this.h) byId("without").textContent = "";
    Object.assign(this, { model, h });
    const { reading, heads, state } = model;
    const { name, words } = heads[h];
    byId("head-name").textContent = words;
    byId("looks-title").textContent = `where “${reading.shown[q]}” looks`;
    const keys = upTo(q).sort((a, b) => model.weight(h, q, b) - model.weight(h, q, a));
    showBars(
      byId("looks"),
      keys.slice(0, LISTED).map((k) => [`${reading.shown[k]}, ${q - k} back`, model.weight(h, q, k)]),
    );
    const { measured } = state.header;
    const [role, figure] = reading.roles[h];
    const means = role === "no fixed target" ? `entropy of its weights ${figure}` : `${figure} of its weight`;
    byId("usually").textContent = `${measured ? "Measured" : "On your text"}: ${role} (${means}).`;
    byId("measured").textContent = measured ? `${sentence(measured.changes[name][1])}. ${measured.summary}` : "";
    const [top, height, width] = [q, 1, q + 1].map((n) => `${(100 * n) / reading.shown.length}%`);
    Object.assign(byId("chosen-row").style, { top, height, width });
    drawMap(byId("map"), model, h);
    this.sayPlace();
  }

  pointAtMap(event) {
    if (!this.model) return;
    const T = this.model.reading.shown.length;
    const frame = byId("map").getBoundingClientRect();
    const shares = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width];
    this.place = shares.map((share) => Math.min(T - 1, Math.max(0, Math.floor(share * T))));
    this.choose(this.place[0]);
  }

  // Says the weight under the pointer, which may rest there while maps change.
  sayPlace() {
    const { model, h } = this;
    const { shown: labels } = model.reading;
    const T = labels.length;
    const [q, k] = this.place ?? [T, T];
    const found = () => (k > q ? "not visible yet" : `weight ${model.weight(h, q, k).toFixed(3)}`);
    const isThere = Math.max(q, k) < T;
    byId("place").textContent = isThere ? `${labels[q]} at ${q} looks at ${labels[k]} at ${k}: ${found()}` : "";
  }

  // Says how much the loss on the text changes without the chosen head; nothing of a text of one character.
  showLoss({ reading: { loss, off } }, name, without) {
    const change = `${Math.abs(without - loss).toFixed(2)} ${without >= loss ? "higher" : "lower"}`;
    const words = loss === null ? "" : `Without this head, the loss on your text is ${change}.`;
    byId("without").textContent = off.includes(name) ? "This head is off." : words;
  }

  showSwitches(model) {
    const parts = [...model.heads, ...model.memories];
    keepChildren(byId("switches"), parts.length, () => make("button"));
    parts.forEach(({ name, words }, i) => {
      const button = byId("switches").children[i];
      Object.assign(button, { textContent: words, onclick: () => this.flip(name) });
      button.setAttribute("aria-pressed", !model.off.has(name));
    });
  }
}

const sentence = (words) => words[0].toUpperCase() + words.slice(1);
