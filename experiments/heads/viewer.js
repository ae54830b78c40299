"use strict";
// A viewer of attention maps: choose a head, then point at a character to see what it attends to.

const LISTED = 5; // keys in the list
const LABEL_PX = 11; // the least width of a character on an axis
const MOST_BITS = 8; // of surprise, for the darkest shade
const SCALES = {
  surprise: { labels: ["expected: 0 bits", "4", "surprising: 8 or more"], strength: (bits) => (0.9 * Math.min(bits, MOST_BITS)) / MOST_BITS },
  attention: { labels: ["0", "weight 0.25", "1"], strength: Math.sqrt }, // the root makes small weights visible
};

function make(tag, text, attributes = {}, children = []) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  element.append(...children);
  return element;
}

// Buttons A and B, which show one part of an element with two parts where both do not fit.
function chooseLetter(group, parts, onShow = () => {}) {
  const show = (shown) => {
    parts.dataset.shown = shown;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === shown));
    onShow(shown);
  };
  const buttons = ["A", "B"].map((letter, i) => make("button", `Model ${letter}`, { onclick: () => show(i) }));
  group.append(...buttons);
  show(0);
}

// A text in which each character is shaded, and can be chosen with the pointer or the keyboard.
class ShadedText {
  // valueOf(by, i): the surprise or the attention weight of a character, or null.
  constructor(root, valueOf, onPoint) {
    Object.assign(this, { root, valueOf, spans: [], element: root.querySelector(".text") });
    this.buttons = [...root.querySelectorAll(".shading button")];
    this.buttons.forEach((button) => (button.onclick = () => this.shadeBy(button.dataset.by)));
    this.element.onpointerover = (event) => this.spans.includes(event.target) && onPoint(this.spans.indexOf(event.target), false);
    this.element.onclick = (event) => this.spans.includes(event.target) && onPoint(this.spans.indexOf(event.target), true);
    this.shadeBy("surprise");
  }

  // labels: one for each character; those with the class "blank" stand for characters that cannot be seen.
  show(labels, text) {
    this.spans = labels.map((label, i) => make("span", label, { className: label === text[i] ? "" : "blank" }));
    this.element.replaceChildren(
      ...this.spans.flatMap((span, i) => (text[i] === "\n" && labels[i] !== "\n" ? [span, make("br")] : [span])),
    );
    this.shade();
  }

  shadeBy(by) {
    this.by = by;
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset.by === by));
    drawScale(this.root.querySelector(".scale"), by);
    this.shade();
  }

  shade(chosen = this.chosen) {
    this.chosen = chosen;
    this.element.dataset.by = this.by;
    this.spans.forEach((span, i) => {
      const [bits, weight] = [this.valueOf("surprise", i), this.valueOf("attention", i)];
      const value = this.by === "surprise" ? bits : weight;
      span.style.setProperty("--w", `${Math.round(100 * SCALES[this.by].strength(value ?? 0))}%`);
      span.dataset.weight = weight === null ? "" : weight.toFixed(4);
      span.title = [bits === null ? "" : `${bits.toFixed(2)} bits`, weight === null ? "" : `weight ${weight.toFixed(3)}`].filter(Boolean).join(", ");
      span.classList.toggle("query", i === chosen);
      span.classList.toggle("future", this.by === "attention" && i > chosen);
    });
  }
}

function drawScale(element, by) {
  element.dataset.by = by;
  element.replaceChildren(...SCALES[by].labels.map((label) => make("span", label)));
}

// Shows the attention of heads in an element. onChoose(query, pinned) hears of characters that are chosen here.
class Viewer {
  constructor(root, onChoose = () => {}) {
    Object.assign(this, { root, onChoose, head: null, query: null, pinned: false, bits: null, names: [], T: 0 });
    root.replaceChildren(document.getElementById("viewer").content.cloneNode(true));
    this.text = new ShadedText(
      root.querySelector(".reading"),
      (by, i) => (by === "surprise" ? this.bits?.[i] ?? null : this.weightOf(i)),
      (i, pins) => (pins ? this.choose(i, !(this.pinned && i === this.query)) : this.pinned || this.choose(i)),
    );
    drawScale(this.part("chosen-head .scale"), "attention");
    this.text.element.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) this.choose(this.query + by);
      if (by) event.preventDefault();
    };
    this.part("roles").onchange = () => this.filter();
    const map = this.part("map");
    map.onpointermove = map.onpointerdown = (event) => this.pointAtMap(event);
    new ResizeObserver(() => this.drawAxes()).observe(this.part("frame"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawMaps());
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  // Shows a text with its surprise; the maps of the text before are hidden.
  showText({ shown, text, bits }) {
    Object.assign(this, { shown, bits, T: shown.length, weights: null });
    if (this.query === null) this.query = middleOfLine(text);
    this.query = Math.min(this.query, this.T - 1);
    this.part("maps").classList.add("stale");
    this.text.show(shown, text);
    this.text.shade(this.query);
  }

  // Shows the maps of the same text; see `viewer_data`.
  showMaps({ layers, roles, measured, weights }) {
    const before = String(this.names);
    Object.assign(this, { names: layers.flat(), roles, weights: decode(weights) });
    if (this.head === null) this.head = this.sharpest();
    if (String(this.names) !== before) {
      this.buttons = this.names.map((name, h) => make("button", "", { className: "head", onclick: () => this.chooseHead(h) }, [make("canvas"), make("b", name), make("span")]));
      this.part("grid").replaceChildren(...layers.map((layer) => make("div", "", { className: "row" }, layer.map((name) => this.buttons[this.names.indexOf(name)]))));
    }
    this.part("measured").textContent = `(weight on the target, or entropy, ${measured})`;
    const [counts, select] = [new Map(), this.part("roles")];
    roles.forEach(([role]) => counts.set(role, (counts.get(role) ?? 0) + 1));
    const chosen = counts.has(select.value) ? select.value : "";
    select.replaceChildren(make("option", "of any role", { value: "" }), ...[...counts].map(([role, n]) => make("option", `${role} (${n})`, { value: role })));
    select.value = chosen;
    this.part("maps").classList.remove("stale");
    this.buttons.forEach((button, h) => (button.lastChild.textContent = roles[h].join(" ")));
    this.drawMaps();
    this.filter();
  }

  // Hides the heads of other roles.
  filter() {
    const role = this.part("roles").value;
    this.buttons.forEach((button, h) => (button.hidden = role && this.roles[h][0] !== role));
    if (this.buttons[this.head].hidden) this.chooseHead(this.buttons.findIndex((button) => !button.hidden));
  }

  weight(h, q, k) {
    return k > q ? 0 : this.weights[(h * this.T * (this.T + 1)) / 2 + (q * (q + 1)) / 2 + k];
  }

  // The weight that the chosen character gives to another one; null if it cannot see it.
  weightOf(k) {
    return this.weights && k <= this.query ? this.weight(this.head, this.query, k) : null;
  }

  // The head with the highest weight of the chosen character.
  sharpest() {
    const peaks = this.names.map((_, h) => Math.max(...keysUpTo(this.query).map((k) => this.weight(h, this.query, k))));
    return peaks.indexOf(Math.max(...peaks));
  }

  // One pixel per pair of characters; the page scales it.
  drawMap(canvas, h) {
    const [red, green, blue] = colour("--series-0");
    canvas.width = canvas.height = this.T;
    const context = canvas.getContext("2d");
    const image = context.createImageData(this.T, this.T);
    for (let q = 0; q < this.T; q++) {
      for (let k = 0; k <= q; k++) {
        image.data.set([red, green, blue, 255 * SCALES.attention.strength(this.weight(h, q, k))], 4 * (q * this.T + k));
      }
    }
    context.putImageData(image, 0, 0);
  }

  drawMaps() {
    if (!this.weights) return;
    this.buttons.forEach((button, h) => this.drawMap(button.firstChild, h));
    this.chooseHead(this.head);
    this.drawAxes();
  }

  // Labels the axes with the characters or, if they do not fit, with positions.
  drawAxes() {
    const width = this.part("frame").clientWidth / this.T;
    const fits = width >= LABEL_PX;
    const every = fits ? 1 : [5, 10, 20, 50, 100, 200].find((n) => n * width > 30) ?? 500;
    for (const [name, side] of [["key-axis", "left"], ["query-axis", "top"]]) {
      const labels = keysUpTo(this.T - 1).filter((i) => i % every === 0).map((i) => {
        const label = make("span", fits ? this.shown[i] : i);
        label.style[side] = `${(100 * (i + 0.5)) / this.T}%`;
        return label;
      });
      this.part(name).replaceChildren(...labels);
    }
  }

  chooseHead(h) {
    this.head = h;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === h));
    this.drawMap(this.part("map"), h);
    this.show();
  }

  show() {
    this.text.shade(this.query);
    const bits = this.bits?.[this.query];
    const cost = bits === null ? "the first one is not predicted" : `the model gave it ${percent(2 ** -bits)}, a surprise of ${bits?.toFixed(2)} bits`;
    this.part("pointed").textContent = this.bits ? `Outlined: ${this.shown[this.query]} at ${this.query}; ${cost}.` : "";
    if (!this.weights) return;
    const keys = keysUpTo(this.query).sort((a, b) => this.weightOf(b) - this.weightOf(a));
    const role = `${this.names[this.head]} (${this.roles[this.head].join(", ")})`;
    this.part("looking").textContent = `Head ${role}: ${this.shown[this.query]} at ${this.query} looks at`;
    this.part("keys").replaceChildren(
      ...keys.slice(0, LISTED).map((k) => {
        const item = make("li", `${this.shown[k]} at ${k}: ${this.weightOf(k).toFixed(3)}`);
        item.dataset.key = k;
        item.style.setProperty("--w", `${100 * this.weightOf(k)}%`);
        return item;
      }),
    );
    const [top, height, width] = [this.query, 1, this.query + 1].map((n) => `${(100 * n) / this.T}%`);
    Object.assign(this.part("chosen-row").style, { top, height, width });
  }

  // Selects a character here; `choose` also reports it.
  select(q, isPinned = this.pinned) {
    this.query = Math.min(this.T - 1, Math.max(0, q));
    this.pinned = isPinned;
    this.text.element.classList.toggle("pinned", isPinned);
    this.show();
  }

  choose(q, isPinned) {
    this.select(q, isPinned);
    this.onChoose(this.query, this.pinned);
  }

  pointAtMap(event) {
    const box = this.part("map").getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    const [q, k] = [y, x].map((share) => Math.min(this.T - 1, Math.max(0, Math.floor(share * this.T))));
    if (!this.pinned) this.choose(q);
    const found = k > q ? "not visible yet" : `weight ${this.weight(this.head, q, k).toFixed(3)}`;
    this.part("place").textContent = `${this.shown[q]} at ${q} looks at ${this.shown[k]} at ${k}: ${found}`;
  }
}

const keysUpTo = (query) => Array.from({ length: query + 1 }, (_, k) => k);
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

// The middle of the last long line: a character that has something to look back at.
function middleOfLine(text) {
  const lines = [];
  text.forEach((c, i) => (i === 0 || text[i - 1] === "\n" ? lines.push([i, i]) : (lines.at(-1)[1] = i)));
  const longest = Math.max(...lines.map(([first, last]) => last - first));
  const [first, last] = lines.findLast(([first, last]) => last - first >= longest / 2);
  return text.findIndex((c, i) => i >= Math.floor((first + last) / 2) && (/\S/.test(c) || i === last));
}

// Decodes each head's lower triangle, row by row, from 16-bit fractions.
function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / 65535);
}

// Red, green and blue of a CSS variable, which may have any notation.
function colour(name) {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}
