// A drawing of the whole model, made of its shapes: V characters, C channels, T the context length, H heads of D
// channels, and K heads of keys and values.

const WIDE = 240; // in the units of the drawing
const ROW = 22;
const GAP = 3; // between heads
const STREAM = 10; // where the residual stream runs down
const LEFT = 30; // where the parts begin that read it and add to it
const LABELLED = 20; // the least width of a head with a label

// Returns the rows of the drawing, from the text to the next character: the method that draws it, and its arguments.
function rowsOf({ config, tensors }) {
  const shape = (name) => tensors[`${name}.weight`].shape;
  const [V, C] = shape("token_embedding");
  const { block_size: T, positions, ngrams, longest_copy, conv_width } = config;
  const rows = [["note", `text: at most T = ${T} characters`], ["box", `embedding: V × C = ${V} × ${C}`], ["gap"]];
  const known = {
    learned: ["addition", `positions: T × C = ${T} × ${C}`],
    rope: ["title", "positions: heads rotate q and k"],
    alibi: ["title", "positions: scores fall with distance"],
  };
  if (known[positions]) rows.push(known[positions]);
  if (ngrams.length) rows.push(["addition", `n-grams of ${ngrams.join(", ")}`]);
  if (longest_copy) rows.push(["addition", `copies of 3 to ${longest_copy} characters`]);
  config.layers.forEach(({ n_head: H, n_kv_head: K, head_size: D }, l) => {
    const mixed = conv_width > 1 ? `convolution of ${conv_width}, ` : "";
    rows.push(["title", `layer ${l}: H = ${H} head${H > 1 ? "s" : ""} of D = ${D}`], ["attention", "", H]);
    if (K < H) rows.push(["groups", `K = ${K} shared heads of k and v`, K]);
    rows.push(["part", `${mixed}MLP of ${shape(`blocks.${l}.mlp.proj`)[1]}`]);
  });
  const norm = { rms: "RMSNorm", layer: "LayerNorm" }[config.norm];
  return [
    ...rows,
    ["gap"],
    ["box", norm],
    ["gap"],
    ["box", `output: C × V = ${C} × ${V}`],
    ["note", "the next character"],
  ];
}

class Diagram {
  // header: the settings of a model and the shapes of its tensors. choose(h): the user clicks the h-th of all heads.
  constructor(svg, header, choose) {
    Object.assign(this, { svg, choose, heads: [], y: 0 });
    const rows = rowsOf(header);
    for (const [method, ...what] of rows) this[method](...what);
    svg.setAttribute("viewBox", `0 0 ${WIDE} ${this.y}`);
    this.words = rows.flatMap(([, text]) => text || []).join("; ");
    this.highlight(null, "none");
  }

  // Highlights the h-th of all heads; null: none.
  highlight(h, name) {
    this.heads.forEach((head, i) => head.classList.toggle("chosen", i === h));
    this.svg.setAttribute("aria-label", `The model: ${this.words}. The chosen head: ${name}.`);
  }

  note(text) {
    addTo(this.svg, "text", { x: 0, y: this.y + 14 }, text);
    this.y += ROW;
  }

  box(text) {
    this.rect(0, WIDE, text);
    this.y += ROW - 4;
  }

  // The residual stream passes by.
  gap(height = 8) {
    this.path(`M${STREAM} ${this.y}v${height}`);
    this.y += height;
  }

  title(text) {
    addTo(this.svg, "text", { x: LEFT, y: this.y + 15 }, text);
    this.gap(ROW - 2);
  }

  // A part reads the stream through a norm and adds to it.
  part(text) {
    this.read();
    this.addition(text);
  }

  addition(text) {
    this.rect(LEFT, WIDE - LEFT, text);
    this.sum();
  }

  // H heads side by side.
  attention(_, H) {
    this.read();
    const width = (WIDE - LEFT) / H;
    for (let h = 0; h < H; h++) {
      const i = this.heads.length;
      const head = this.rect(LEFT + h * width, width, width < LABELLED ? "" : `H${h}`);
      head.setAttribute("class", "head");
      head.onclick = () => this.choose(i);
      this.heads.push(head);
    }
    this.sum();
  }

  // K bars, each below the heads that share a head of keys and values.
  groups(text, K) {
    const width = (WIDE - LEFT) / K;
    for (let k = 0; k < K; k++) this.path(`M${LEFT + k * width} ${this.y}h${width - GAP}`);
    this.title(text);
  }

  read() {
    this.path(`M${STREAM} ${this.y + 4}H${LEFT}`);
    addTo(this.svg, "rect", { x: (STREAM + LEFT) / 2, y: this.y, width: 4, height: 8 }); // the norm
  }

  sum() {
    const y = this.y + ROW - 9;
    this.path(`M${LEFT} ${y}H${STREAM}`);
    this.gap(ROW);
    addTo(this.svg, "circle", { cx: STREAM, cy: y, r: 4 });
    this.path(`M${STREAM - 4} ${y}h8m-4 -4v8`);
  }

  // Returns a rectangle with a text in it.
  rect(x, width, text) {
    const group = addTo(this.svg, "g", {});
    addTo(group, "rect", { x, y: this.y, width: Math.max(1, width - GAP), height: ROW - 4, rx: 2 });
    addTo(group, "text", { x: x + 5, y: this.y + 13 }, text);
    return group;
  }

  path(d) {
    addTo(this.svg, "path", { d });
  }
}
