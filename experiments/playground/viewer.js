"use strict";
// A viewer of attention maps: choose a head to see what a chosen character attends to.

const LISTED = 5; // keys in the list
const LABEL_PX = 11; // the least width of a character on an axis
const strength = Math.sqrt; // of the shade of a weight: the root makes small weights visible

// Returns a new element with a text or with other elements in it.
function make(tag, content = [], attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...[content].flat());
  return element;
}

// Shows the attention of heads. part(name) finds an element; onChoose(query) is called for each character that is chosen.
// measured: see `measured` in models.py; null if the heads were not measured.
class Viewer {
  constructor(part, names, onChoose, measured) {
    Object.assign(this, { part, names, onChoose, measured, head: null, query: 0, T: 0, weights: null });
    this.buttons = names.map((name, h) => {
      const loss = measured ? `loss ${measured.changes[name][0]}` : "";
      const content = [make("canvas"), make("b", name), make("span"), make("span", loss)];
      return make("button", content, { className: "head", onclick: () => this.chooseHead(h) });
    });
    this.part("grid").append(...this.buttons);
    this.part("measured").textContent = `(weight on the target, or entropy, ${measured?.over ?? "on this text"})`;
    this.part("summary").textContent = measured?.summary ?? "";
    this.part("roles").onchange = () => this.filter();
    const map = this.part("map");
    map.onpointermove = map.onpointerdown = (event) => this.pointAtMap(event);
    whenLeft(map, () => this.forgetPlace());
    new ResizeObserver(() => this.drawAxes()).observe(this.part("frame"));
  }

  // Starts a new text, given the labels of its characters. The previous maps fade.
  begin(labels) {
    Object.assign(this, { labels, T: labels.length, query: Math.min(this.query, labels.length - 1), weights: null });
    this.part("viewer").classList.add("stale");
    this.forgetPlace();
  }

  // Shows the maps of the text; see `inside` in worker.js. If other weights made them, what was chosen stays in sight.
  showMaps({ roles, weights }) {
    const isNew = !this.weights;
    Object.assign(this, { roles, weights });
    const inTile = (role) => role.join(" ").replace("no fixed target", "no target"); // of two lines
    this.buttons.forEach((button, h) => button.children[2].replaceChildren(inTile(roles[h])));
    this.part("viewer").classList.remove("stale");
    this.offerRoles();
    this.select(this.query);
    this.drawMaps();
    this.filter();
    if (isNew) this.scrollToHead();
  }

  offerRoles() {
    const select = this.part("roles");
    const counts = new Map();
    this.roles.forEach(([role]) => counts.set(role, (counts.get(role) ?? 0) + 1));
    const chosen = counts.has(select.value) ? select.value : "";
    const options = [make("option", "of any role", { value: "" })];
    options.push(...[...counts].map(([role, n]) => make("option", `${role} (${n})`, { value: role })));
    if (select.textContent === options.map((option) => option.textContent).join("")) return;
    select.replaceChildren(...options);
    select.value = chosen;
  }

  // Hides the heads of other roles.
  filter() {
    const role = this.part("roles").value;
    this.buttons.forEach((button, h) => button.toggleAttribute("hidden", role && this.roles[h][0] !== role));
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
    const peaks = this.names.map((_, h) => Math.max(...upTo(this.query).map((k) => this.weight(h, this.query, k))));
    return peaks.indexOf(Math.max(...peaks));
  }

  // One pixel per pair of characters; the page scales it.
  drawMap(canvas, h) {
    canvas.width = canvas.height = this.T;
    const context = canvas.getContext("2d");
    const image = context.createImageData(this.T, this.T);
    for (let q = 0; q < this.T; q++) {
      for (let k = 0; k <= q; k++) image.data[4 * (q * this.T + k) + 3] = 255 * strength(this.weight(h, q, k)); // opacity
    }
    context.putImageData(image, 0, 0);
    context.globalCompositeOperation = "source-in"; // what is drawn keeps its opacity and gets the colour
    context.fillStyle = colour("--series-0");
    context.fillRect(0, 0, this.T, this.T);
  }

  drawMaps() {
    if (!this.weights) return;
    this.buttons.forEach((button, h) => this.drawMap(button.firstChild, h));
    this.drawMap(this.part("map"), this.head);
    this.drawAxes();
  }

  // Labels the axes with the characters or, if they do not fit, with positions.
  drawAxes() {
    const width = this.part("frame").clientWidth / this.T;
    const fits = width >= LABEL_PX;
    const every = fits ? 1 : ([5, 10, 20, 50, 100, 200].find((n) => n * width > 30) ?? 500);
    const places = upTo(this.T - 1).filter((i) => i % every === 0);
    const label = (i) => make("span", fits ? this.labels[i] : i, { style: `--at: ${(100 * (i + 0.5)) / this.T}%` });
    for (const name of ["key-axis", "query-axis"]) this.part(name).replaceChildren(...places.map(label));
  }

  chooseHead(h) {
    this.head = h;
    if (!this.weights) return; // the maps will be those of this head
    this.forgetPlace();
    this.drawMap(this.part("map"), h);
    this.scrollToHead();
    this.onChoose(this.query);
  }

  // Scrolls the list of heads, but not the page, to the chosen one.
  scrollToHead() {
    const [grid, { offsetTop: top, offsetHeight: height }] = [this.part("grid"), this.buttons[this.head]];
    const isInSight = top >= grid.scrollTop && top + height <= grid.scrollTop + grid.clientHeight;
    if (!isInSight) grid.scrollTop = top - (grid.clientHeight - height) / 2;
  }

  // Shows what a character attends to.
  select(query) {
    this.query = query;
    if (!this.weights) return;
    if (this.head === null) this.head = this.sharpest();
    this.buttons.forEach((button, h) => button.setAttribute("aria-pressed", h === this.head));
    const name = this.names[this.head];
    const known = this.roles[this.head].join(", ") + (this.measured ? `; ${this.measured.changes[name][1]}` : "");
    this.part("looking").textContent = `Head ${name} (${known}): ${this.labels[query]} at ${query} looks at`;
    const keys = upTo(query).sort((a, b) => this.weightOf(b) - this.weightOf(a));
    const items = keys.slice(0, LISTED).map((k) => {
      const weight = this.weightOf(k);
      return make("li", `${this.labels[k]} at ${k}: ${weight.toFixed(3)}`, { style: `--w: ${100 * weight}%` });
    });
    this.part("keys").replaceChildren(...items);
    const [top, height, width] = [query, 1, query + 1].map((n) => `${(100 * n) / this.T}%`);
    Object.assign(this.part("chosen-row").style, { top, height, width });
  }

  pointAtMap(event) {
    if (!this.weights) return;
    const frame = this.part("map").getBoundingClientRect();
    const shares = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width];
    const [q, k] = shares.map((share) => Math.min(this.T - 1, Math.max(0, Math.floor(share * this.T))));
    this.onChoose(q);
    const found = k > q ? "not visible yet" : `weight ${this.weight(this.head, q, k).toFixed(3)}`;
    this.part("place").textContent = `${this.labels[q]} at ${q} looks at ${this.labels[k]} at ${k}: ${found}`;
  }

  forgetPlace() {
    this.part("place").textContent = "";
  }
}

const upTo = (last) => Array.from({ length: last + 1 }, (_, i) => i);

// Returns the value of a CSS variable of the page.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
