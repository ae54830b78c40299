// A head step by step: the lines of the head in README.md, each with its numbers in this model on this text.

import { byId, make } from "./elements.js";

const CHANNELS = 5; // of a vector, the first ones
const VECTORS = ["q", "k", "v", "output", "added"]; // the tables of them
// Which numbers go into row i and column j of a table, by their table: [row, column], or a whole row or column.
const SOURCES = {
  scores: (i, j) => ({ q: [i], k: [j] }),
  "masked scores": (i, j) => ({ tril: [i, j], scores: [i, j] }),
  weights: (i) => ({ "masked scores": [i] }),
  output: (i, c) => ({ weights: [i], v: [null, c] }),
  added: (i) => ({ output: [i] }),
};

const digits = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(2)); // 0 and 1 of the mask are whole
const decimal = (x) => (x === -Infinity ? "-\u221e" : digits(x)).replace("-", "\u2212");

// Returns the lines of code, each with the tables of its results, rows of numbers by their names. answer: that of `head`
// in reader.js.
export function linesOf({ qk_norm, positions }, { q, k, v, scores, weights, outputs, added }) {
  const normalised = qk_norm ? "\nq, k = scale / q.size(-1) ** 0.5 * rms_norm(q), rms_norm(k)" : "";
  const rotated = positions === "rope" ? "\nq, k = rotate(q), rotate(k)  # by their positions" : "";
  const sloped = positions === "alibi" ? "\nscores = scores - slope * distance" : "";
  const tril = scores.map((row, i) => row.map((_, j) => Number(j <= i)));
  const masked = scores.map((row, i) => row.map((each, j) => (j <= i ? each : -Infinity)));
  const whole = weights.map((row) => [...row, Math.max(0, 1 - row.reduce((a, b) => a + b))]);
  return [
    ['self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)', { tril }],
    [`q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each${normalised}${rotated}`, { q, k, v }],
    [
      `scores = q @ k.transpose(1, 2) / k.size(-1) ** 0.5  # / sqrt(D) keeps their variance near 1${sloped}`,
      { scores },
    ],
    [
      'scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # hide the future',
      { "masked scores": masked },
    ],
    ["weights = F.softmax(scores, dim=-1)  # each row sums to 1", { weights: whole }],
    ["return weights @ v  # (B, T, D)", { output: outputs }],
    ["x = x + self.proj(heads)  # (B, T, C); below, what this head adds", { added }],
  ];
}

// Shows the lines of a head. config: the settings of the model. answer: that of `head` in reader.js.
export function showSteps(config, answer) {
  const keys = answer.names.map((name, i) => `${name}\n${answer.places[i]}`);
  const sections = linesOf(config, answer).map(([code, tables]) => {
    const drawn = Object.entries(tables).map(([name, rows]) => tableOf(name, rows, keys));
    return make("section", [make("pre", code), make("div", drawn, { className: "matrices" })]);
  });
  const lines = byId("lines");
  lines.replaceChildren(...sections);
  lines.onpointerover = lines.onpointerleave = ({ target }) => lightUp(target.place);
}

// Returns the element of a table. keys: the labels of the rows, and of the columns unless these are channels.
function tableOf(name, rows, keys) {
  const columns = VECTORS.includes(name) ? [...rows[0].keys()].slice(0, CHANNELS) : [...keys, "rest"];
  const labels = columns.slice(0, rows[0].length);
  const cellsOf = (row, i) => labels.map((_, j) => make("td", decimal(row[j]), { place: [name, i, j] }));
  const body = rows.map((row, i) => make("tr", [make("th", keys[i]), ...cellsOf(row, i)]));
  const head = make("tr", [make("td"), ...labels.map((label) => make("th", label))]);
  const table = make("table", [make("caption", name), make("thead", head), make("tbody", body)]);
  table.dataset.name = name;
  return table;
}

// Lights up a number and those that went into it; without a place, none.
function lightUp([name, i, j] = []) {
  const lit = { [name]: [i, j], ...SOURCES[name]?.(i, j) };
  for (const td of byId("lines").querySelectorAll("tbody td")) {
    const [table, row, column] = td.place;
    const [r, c] = lit[table] ?? [-1];
    td.classList.toggle("lit", (r ?? row) === row && (c ?? column) === column);
  }
}
