// A head step by step: the lines of the head in README.md, each with its numbers in this model on this text.

import { whenLeft } from "./curves.js";
import { byId, make } from "./elements.js";

const CHANNELS = 5; // of a vector, the first ones
const TERMS = 3; // of a sum, the largest ones
const SCORES = {
  scaled_dot: "q @ k.transpose(1, 2) / k.size(-1) ** 0.5  # / sqrt(D) keeps their variance near 1",
  dot: "q @ k.transpose(1, 2)",
  uniform: "torch.zeros(B, T, T)",
  additive: "self.score.weight(torch.tanh(self.score.query(q)[:, :, None] + self.score.key(k)[:, None])).squeeze(-1)",
  gaussian: "-((q[:, :, None] - k[:, None]) * self.score.w).pow(2).sum(-1) / 2",
};

const digits = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(2)); // 0 and 1 of the mask are whole
const decimal = (x) => (x === -Infinity ? "-\u221e" : digits(x)).replace("-", "\u2212");

// Writes the sum of the products of pairs, the largest ones first.
function sumOf(pairs) {
  const largest = [...pairs].sort(([a, b], [c, d]) => Math.abs(c * d) - Math.abs(a * b)).slice(0, TERMS);
  const rest = pairs.length > TERMS ? ` + \u2026 (${pairs.length} products)` : "";
  return largest.map(([a, b]) => `${decimal(a)} \u00d7 ${decimal(b)}`).join(" + ") + rest;
}

// Returns the lines of code, each with the tables of its results: { code, tables }. A table has a name, rows and the names
// of its columns. `product(i, j)` says how a number of it came about, `from(i, j)` which numbers went into it, by their
// table: [row, column], or a whole row or column. answer: that of `head` in reader.js, and its labels as `keys`.
function linesOf(config, answer) {
  const at = (i) => `${answer.names[i]} at ${answer.places[i]}`;
  const sees = (i, j) => `${at(i)} ${j <= i ? "sees" : "does not see"} ${at(j)}`;
  const hidden = (i) => answer.places[i] - i; // how many characters up to this one are not shown
  const masked = answer.scores.map((row, i) => row.map((each, j) => (j <= i ? each : -Infinity)));
  const head = { ...answer, at, sees, hidden, masked };
  const lines = [maskLine, projectionsLine, scoresLine, maskedScoresLine, weightsLine, outputLine, addedLine];
  return lines.map((line) => line(head, config));
}

// Returns a table of vectors (D,).
function vectors(name, rows, product, from) {
  return { name, rows, columns: [...rows[0].keys()].slice(0, CHANNELS), product, from };
}

function maskLine({ scores, keys, sees }) {
  const rows = scores.map((row, i) => row.map((_, j) => Number(j <= i)));
  return {
    code: 'self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)',
    tables: [{ name: "tril", rows, columns: keys, product: sees }],
  };
}

function projectionsLine({ q, k, v, at }, { qk_norm, positions, score }) {
  let code = "q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each";
  let then = "";
  if (qk_norm) {
    const scaled = score === "scaled_dot" ? "scale / q.size(-1) ** 0.5 * " : ""; // the other scores have no scale
    code += `\nq, k = ${scaled}rms_norm(q), rms_norm(k)`;
    then += ", then normalised";
  }
  if (positions === "rope") {
    code += "\nq, k = rotate(q), rotate(k)  # by their positions";
    then += ", then rotated";
  }
  const read = (map) => (i, c) => `row ${c} of the ${map} map times what the layer reads at ${at(i)}`;
  const turned = (map) => (i, c) => read(map)(i, c) + then;
  return {
    code,
    tables: [vectors("q", q, turned("query")), vectors("k", k, turned("key")), vectors("v", v, read("value"))],
  };
}

function scoresLine({ q, k, scores, keys, places }, { score, positions }) {
  let code = `scores = ${SCORES[score]}`;
  const hasSlope = positions === "alibi";
  if (hasSlope) code += "\nscores = scores - slope * distance";
  const product = (i, j) => {
    const sum = sumOf(Array.from(q[i], (each, c) => [each, k[j][c]]));
    const match = { dot: sum, scaled_dot: `(${sum}) / \u221a${q[i].length}` }[score] ?? SCORES[score];
    return hasSlope ? `${match} \u2212 slope \u00d7 ${decimal(places[i] - places[j])}` : match;
  };
  const from = (i, j) => ({ q: [i], k: [j] });
  return { code, tables: [{ name: "scores", rows: scores, columns: keys, product, from }] };
}

function maskedScoresLine({ masked, keys, sees }) {
  const from = (i, j) => ({ tril: [i, j], scores: [i, j] });
  return {
    code: 'scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # hide the future',
    tables: [{ name: "masked scores", rows: masked, columns: keys, product: sees, from }],
  };
}

function weightsLine({ places, hidden, masked, weights, keys }) {
  const columns = hidden(keys.length - 1) ? [...keys, "rest"] : keys;
  const rows = weights.map((each) => [...each, Math.max(0, 1 - each.reduce((a, b) => a + b))]);
  const product = (i, j) => {
    if (j === keys.length) return `weights of the ${hidden(i)} other characters that it sees`;
    return `e^${decimal(masked[i][j])} / sum of e^score over ${places[i] + 1} characters`;
  };
  const from = (i) => ({ "masked scores": [i] });
  return {
    code: "weights = F.softmax(scores, dim=-1)  # each row sums to 1",
    tables: [{ name: "weights", rows, columns, product, from }],
  };
}

function outputLine({ hidden, v, weights, outputs }) {
  const product = (i, c) => {
    const sum = sumOf(weights[i].map((weight, j) => [weight, v[j][c]]));
    return hidden(i) ? `${sum} + what comes from the rest` : sum;
  };
  const from = (i, c) => ({ weights: [i], v: [null, c] });
  return { code: "return weights @ v  # (B, T, D)", tables: [vectors("output", outputs, product, from)] };
}

function addedLine({ added, at }) {
  const product = (i, c) => `row ${c} of proj times the output at ${at(i)}`;
  const from = (i) => ({ output: [i] });
  return {
    code: "x = x + self.proj(heads)  # (B, T, C); below, what this head adds",
    tables: [vectors("added", added, product, from)],
  };
}

// Shows the head, and explains the number that the user points at.
export class Steps {
  constructor() {
    this.place = null;
    const lines = byId("lines");
    lines.onpointerover = lines.onpointerdown = ({ target }) => this.explain(target.closest("td")?.place);
    whenLeft(lines, () => {
      if (!lines.querySelector(":focus-visible")) this.forget();
    });
    lines.addEventListener("focusout", ({ relatedTarget }) => {
      if (!lines.contains(relatedTarget)) this.forget();
    });
    lines.addEventListener("focusin", ({ target: { dataset } }) => {
      if (this.place?.[0] !== dataset.name) this.explain([dataset.name, 0, 0]);
    });
    lines.onkeydown = (event) => this.walk(event);
  }

  // config: the settings of the model. answer: that of `head` in reader.js.
  show(config, answer) {
    const focused = byId("lines").querySelector(":focus")?.dataset.name;
    const { place } = this;
    this.tables = new Map();
    const keys = answer.names.map((name, i) => `${name}\n${answer.places[i]}`);
    const sections = linesOf(config, { ...answer, keys }).map(({ code, tables }) => {
      const elements = tables.map((table) => this.draw(table, keys));
      return make("section", [make("pre", code), make("div", elements, { className: "matrices" })]);
    });
    byId("lines").replaceChildren(...sections);
    this.forget();
    this.tables.get(focused)?.element.focus({ preventScroll: true });
    if (focused || byId("lines").matches(":hover")) this.explain(place);
  }

  // Returns the element of a table, and remembers its cells (rows, columns). keys: the labels of the rows.
  draw({ name, rows, columns, ...how }, keys) {
    const cells = rows.map((row, i) => columns.map((_, j) => make("td", decimal(row[j]), { place: [name, i, j] })));
    const body = cells.map((row, i) => make("tr", [make("th", keys[i]), ...row]));
    const labels = [make("td"), ...columns.map((label) => make("th", label))];
    const parts = [make("caption", name), make("thead", make("tr", labels)), make("tbody", body)];
    const element = make("table", parts, { tabIndex: 0 });
    element.dataset.name = name;
    this.tables.set(name, { ...how, rows, cells, element });
    return element;
  }

  // Says how a number came about, and lights up the numbers that went into it.
  explain(place) {
    const [name, i, j] = place ?? [];
    const { rows, cells, product, from = () => ({}) } = this.tables.get(name) ?? {};
    if (!cells?.[i]?.[j]) return;
    this.forget();
    this.place = place;
    cells[i][j].className = "chosen";
    for (const [table, [row, column]] of Object.entries(from(i, j))) {
      const places = this.tables.get(table).cells.flat();
      const isSource = ({ place: [, r, c] }) => (row ?? r) === r && (column ?? c) === c;
      for (const td of places.filter(isSource)) td.className = "lit";
    }
    byId("product").textContent = `${name} ${decimal(rows[i][j])} = ${product(i, j)}`;
  }

  forget() {
    this.place = null;
    byId("product").textContent = "";
    for (const td of byId("lines").querySelectorAll("td")) td.className = "";
  }

  walk(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!moves[event.key] || !this.place) return;
    const [down, right] = moves[event.key];
    const [name, i, j] = this.place;
    this.explain([name, i + down, j + right]);
    event.preventDefault();
  }
}
