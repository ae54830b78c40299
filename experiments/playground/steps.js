// A head step by step: the lines of the head in README.md, each with its numbers in this model on this text.

const CHANNELS = 5; // of a vector, as numbers; bars show all of them
const TERMS = 3; // of a sum, the largest ones
const SCORES = {
  scaled_dot: "q @ k.transpose(1, 2) / k.size(-1) ** 0.5  # / sqrt(D) keeps their variance near 1",
  dot: "q @ k.transpose(1, 2)",
  uniform: "torch.zeros(B, T, T)",
  additive: "self.weight(torch.tanh(self.query(q)[:, :, None] + self.key(k)[:, None])).squeeze(-1)",
  gaussian: "-((q[:, :, None] - k[:, None]) * self.w).pow(2).sum(-1) / 2",
};

const digits = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(2)); // 0 and 1 of the mask are whole
const decimal = (x) => (x === -Infinity ? "-\u221e" : digits(x)).replace("-", "\u2212");

// Writes the sum of the products of pairs, the largest ones first.
function sumOf(pairs) {
  const largest = [...pairs].sort(([a, b], [c, d]) => Math.abs(c * d) - Math.abs(a * b)).slice(0, TERMS);
  const rest = pairs.length > TERMS ? ` + \u2026 (${pairs.length} products)` : "";
  return largest.map(([a, b]) => `${decimal(a)} \u00d7 ${decimal(b)}`).join(" + ") + rest;
}

// Returns the lines of code with the tables of their results: [code, table, ...]. `product(i, j)` says how a number of a
// table came about, `from(i, j)` which numbers went into it, as [table, row, column], and null stands for all columns.
function linesOf({ score, qk_norm, positions }, { first, q, k, v, scores, weights, outputs, added, row }, labels) {
  const n = q.length,
    names = labels.slice(first, first + n),
    at = (i) => `${names[i]} at ${first + i}`;
  const tril = scores.map((of, i) => of.map((_, j) => Number(j <= i)));
  const masked = scores.map((of, i) => of.map((each, j) => (j <= i ? each : -Infinity)));
  const shares = weights.map((of) => [...of, Math.max(0, 1 - of.reduce((a, b) => a + b))]); // and of all before these
  const channels = [...q[0].keys()].slice(0, CHANNELS),
    before = first ? ["before"] : [];
  const sees = (i, j) => `${at(i)} ${j <= i ? "sees" : "does not see"} ${at(j)}`;
  const read = (map) => (i, c) => `row ${c} of the ${map} map times what the layer reads at ${at(i)}`;
  const products = { scaled_dot: (sum) => `(${sum}) / \u221a${q[0].length}`, dot: (sum) => sum };
  const match = (i, j) => products[score]?.(sumOf(Array.from(q[i], (each, c) => [each, k[j][c]]))) ?? "";
  const share = (i, j) =>
    j === n
      ? `weights of the ${first} characters before`
      : `e^${decimal(masked[i][j])} / sum of e^score over ${first + i + 1} characters`;
  const mix = (i, c) =>
    sumOf(weights[i].map((weight, j) => [weight, v[j][c]])) + (first ? " + what comes from before" : "");
  const vector = (name, rows, product, from) => ({ name, rows, columns: channels, bars: rows[n - 1], product, from });
  const pair = (name, rows, product, from, bars) => ({ name, rows, columns: names, bars, product, from });
  return [
    [
      'self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)), persistent=False)',
      pair("tril", tril, sees),
    ],
    [
      "q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each" +
        (qk_norm ? "\nq, k = scale * rms_norm(q), rms_norm(k)" : "") +
        (positions === "rope" ? "\nq, k = rotate(q), rotate(k)  # by their positions" : ""),
      vector("q", q, read("query")),
      vector("k", k, read("key")),
      vector("v", v, read("value")),
    ],
    [
      `scores = ${SCORES[score]}` + (positions === "alibi" ? "\nscores = scores - slope * distance" : ""),
      pair(
        "scores",
        scores,
        match,
        (i, j) => [
          ["q", i, null],
          ["k", j, null],
        ],
        row.scores,
      ),
    ],
    [
      'scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # hide the future',
      pair("masked scores", masked, sees, (i, j) => [
        ["tril", i, j],
        ["scores", i, j],
      ]),
    ],
    [
      "weights = F.softmax(scores, dim=-1)  # each row sums to 1",
      {
        ...pair("weights", shares, share, (i) => [["masked scores", i, null]], row.weights),
        columns: [...names, ...before],
      },
    ],
    [
      "return weights @ v  # (B, T, D)",
      vector("output", outputs, mix, (i, c) => [["weights", i, null], ...names.map((_, j) => ["v", j, c])]),
    ],
    [
      "x = x + self.proj(heads)  # (B, T, C); below, what this head adds",
      vector(
        "added",
        added,
        (i, c) => `row ${c} of proj times the output at ${at(i)}`,
        (i) => [["output", i, null]],
      ),
    ],
  ];
}

// Shows the head in an element, and explains the number that the user points at.
class Steps {
  constructor(root) {
    Object.assign(this, { root, place: null });
    const lines = this.part("lines");
    lines.onpointerover = lines.onpointerdown = ({ target }) => this.explain(target.closest("td")?.place);
    lines.addEventListener(
      "focusin",
      ({ target: { dataset } }) => this.place?.[0] === dataset.name || this.explain([dataset.name, 0, 0]),
    );
    lines.onkeydown = (event) => this.walk(event);
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  // config: the settings of the model. answer: that of `head` in worker.js. labels: of the characters.
  show(config, answer, labels) {
    const { changes, isOff, first } = answer,
      focused = document.activeElement.dataset.name;
    const lines = linesOf(config, answer, labels);
    this.names = labels.slice(first, first + answer.q.length);
    this.tables = new Map(
      lines.flatMap(([, ...tables]) => tables.map((table) => [table.name, { ...table, ...this.draw(table) }])),
    );
    const sections = lines.map(([code, ...tables]) => {
      const drawn = tables.map(({ name }) => this.tables.get(name).root);
      return make("section", "", {}, [make("pre", code), make("div", "", { className: "matrices" }, drawn)]);
    });
    this.part("lines").replaceChildren(...sections);
    const [raised, lowered] = changes.map((side) => side.map(([label, by]) => `${label} ${decimal(by)}`).join(", "));
    this.part("effect").textContent = isOff
      ? "This head is switched off: nothing of it is added."
      : `What it adds raises these logits of the next character most: ${raised}. It lowers these most: ${lowered}. What later parts make of it is not counted.`;
    this.tables.get(focused)?.table.focus();
    this.explain(this.place);
  }

  // Returns the element of a table, the table in it, and its cells (rows, columns).
  draw({ name, rows, columns, bars }) {
    const cell = (i) => (j) => make("td", decimal(rows[i][j]), { place: [name, i, j] });
    const cells = rows.map((_, i) => [...columns.keys()].map(cell(i)));
    const body = cells.map((row, i) => make("tr", "", {}, [make("th", this.names[i]), ...row]));
    const head = make(
      "tr",
      "",
      {},
      ["", ...columns].map((label) => make("th", label)),
    );
    const table = make("table", "", { tabIndex: 0 }, [
      make("caption", name),
      make("thead", "", {}, [head]),
      make("tbody", "", {}, body),
    ]);
    table.dataset.name = name;
    return { table, cells, root: make("div", "", {}, [table, ...(bars ? [drawBars(bars)] : [])]) };
  }

  // Says how a number came about, and lights up the numbers that went into it.
  explain(place) {
    const [name, i, j] = place ?? [],
      { rows, cells, product, from = () => [] } = this.tables.get(name) ?? {};
    if (!cells?.[i]?.[j]) return;
    this.place = place;
    this.tables.forEach((table) => table.cells.flat().forEach((cell) => (cell.className = "")));
    cells[i][j].className = "chosen";
    for (const [table, row, column] of from(i, j)) {
      const lit = this.tables.get(table).cells[row];
      (column === null ? lit : [lit[column]]).forEach((cell) => (cell.className = "lit"));
    }
    this.part("product").textContent = `${name} ${decimal(rows[i][j])} = ${product(i, j)}`;
  }

  // Moves from number to number by the arrow keys.
  walk(event) {
    const [down, right] =
      { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (down === undefined || !this.place) return;
    const [name, i, j] = this.place;
    this.explain([name, i + down, j + right]);
    event.preventDefault();
  }
}

// Returns bars for numbers, upwards if they are positive, as high as the canvas for the largest one.
function drawBars(numbers) {
  const canvas = make("canvas", "", { width: 4 * numbers.length, height: 40 }),
    context = canvas.getContext("2d");
  const [low, high] = [Math.min(0, ...numbers), Math.max(0, ...numbers)],
    unit = canvas.height / (high - low || 1);
  const [red, green, blue] = colour("--series-0");
  context.fillStyle = `rgb(${red} ${green} ${blue})`;
  numbers.forEach((x, i) => context.fillRect(4 * i, (high - Math.max(0, x)) * unit, 3, Math.abs(x) * unit));
  return canvas;
}
