// The GPT of model/gpt.py in plain JavaScript: it reads one character at a time and predicts the next one.
// Names are those of model/. C channels, H heads, K key heads, D channels of a head, V characters, B context length,
// t the position of a query, s that of a key. Vectors are Float64Arrays, weights Float32Arrays, row by row.

// Returns the sum of the products of x (n,) with n numbers of y. Four sums, because each addition waits for the one
// before it.
function dot(x, y, start = 0) {
  const n = x.length;
  let [a, b, c, d] = [0, 0, 0, 0];
  let i = 0;
  for (; i + 3 < n; i += 4) {
    a += x[i] * y[start + i];
    b += x[i + 1] * y[start + i + 1];
    c += x[i + 2] * y[start + i + 2];
    d += x[i + 3] * y[start + i + 3];
  }
  for (; i < n; i++) a += x[i] * y[start + i];
  return a + b + c + d;
}

// Returns x (n,) times the weight (m, n), plus the bias (m,) if the map has one: (m,).
function linear(x, { weight, bias }) {
  const y = new Float64Array(weight.length / x.length);
  for (let i = 0; i < y.length; i++) y[i] = dot(x, weight, i * x.length);
  return bias ? add(y, bias) : y;
}

const add = (x, y) => x.map((each, i) => each + y[i]);

// Returns x / sqrt(mean(x^2) + eps), times a factor; eps is that of float32.
function rmsNorm(x, { factor = 1 }) {
  const scale = factor / Math.sqrt(dot(x, x) / x.length + 2 ** -23);
  return x.map((each) => each * scale);
}

function layerNorm(x, { weight, bias }) {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const centred = x.map((each) => each - mean);
  const scale = 1 / Math.sqrt(dot(centred, centred) / x.length + 1e-5);
  return centred.map((each, i) => each * scale * weight[i] + (bias ? bias[i] : 0));
}

const NORMS = { rms: rmsNorm, layer: layerNorm };

export function softmax(x) {
  const largest = x.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = x.map((each) => Math.exp(each - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((each) => each / sum);
}

// Turns channels i and i + D/2 of a query or key by the i-th angle: (a, b) becomes (a cos - b sin, b cos + a sin).
function rotate(x, { cos, sin }) {
  const half = cos.length;
  return x.map((each, i) => each * cos[i % half] + (i < half ? -x[i + half] : x[i - half]) * sin[i % half]);
}

// Returns the cosines and sines (D/2,) of the angles t * 10000^(-2 i / D) for each position t.
function rotaryTable(D, B) {
  const angles = (t) => Float64Array.from({ length: D / 2 }, (_, i) => t * 10_000 ** ((-2 * i) / D));
  return Array.from({ length: B }, (_, t) => ({ cos: angles(t).map(Math.cos), sin: angles(t).map(Math.sin) }));
}

// Returns how much each head's score falls with each position of distance (ALiBi).
function alibiSlopes(H) {
  const n = 2 ** Math.floor(Math.log2(H)); // the largest power of two up to H
  const slopes = (count) => Array.from({ length: count }, (_, i) => 2 ** ((-8 * (i + 1)) / count));
  return [...slopes(n), ...slopes(2 * n).filter((_, i) => i % 2 === 0)].slice(0, H);
}

// Returns how well a query q (D,) and a key k (D,) match.
export const scaledDot = (q, k) => dot(q, k) / Math.sqrt(q.length);

// Returns what a query q (D,) at position t takes from the values v (t + 1, D) by the match of their keys k (t + 1, D).
// The end of the loops is the causal mask: position t does not see those after it.
function attend(q, k, v, t, slope) {
  const scores = new Float64Array(t + 1);
  for (let s = 0; s <= t; s++) scores[s] = scaledDot(q, k[s]) - slope * (t - s);
  const weights = softmax(scores); // (t + 1,)
  const output = new Float64Array(q.length);
  for (let s = 0; s <= t; s++) {
    for (let i = 0; i < output.length; i++) output[i] += weights[s] * v[s][i];
  }
  return { weights, output };
}

// Returns x_t + w_1 x_(t-1) + ... + w_(W-1) x_(t-W+1) of inputs x (t + 1, C), channel by channel; w is (W - 1, C).
function causalConv(x, t, { weight }) {
  const y = x[t].slice();
  const C = y.length;
  for (let back = 1; back <= Math.min(weight.length / C, t); back++) {
    for (let i = 0; i < C; i++) y[i] += weight[(back - 1) * C + i] * x[t - back][i];
  }
  return y;
}

// Returns the error function, to 1.5e-7 (Abramowitz and Stegun, 1964, 7.1.26).
function erf(x) {
  const u = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = u * (0.254829592 + u * (-0.284496736 + u * (1.421413741 + u * (-1.453152027 + u * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const NONLINEARITIES = {
  relu2: (x) => x.map((each) => Math.max(each, 0) ** 2),
  gelu: (x) => x.map((each) => (each * (1 + erf(each / Math.SQRT2))) / 2),
  swiglu: (x) => x.subarray(0, x.length / 2).map((gate, i) => (gate / (1 + Math.exp(-gate))) * x[x.length / 2 + i]),
};

// The settings of model/config.py that this file implements. Add a new one here when the code below computes it.
const VALUES = {
  positions: ["rope", "learned", "alibi", "none"],
  norm: Object.keys(NORMS),
  mlp: Object.keys(NONLINEARITIES),
  score: ["scaled_dot"],
  qk_norm: [false, true],
};
const SHAPES = ["layers", "n_layer", "n_head", "n_kv_head", "n_embd", "head_size", "block_size", "bias", "conv_width"];
const NUMBERS = ["ngrams", "ngram_rows", "longest_copy", "logit_softcap"];
const WITHOUT_EFFECT = ["dropout", "ngram_dropout", "attention"]; // on what a trained model computes
const OF_ANY_VALUE = [...SHAPES, ...NUMBERS, ...WITHOUT_EFFECT];

// Throws an error if a model has a setting or a name that this file does not implement: it would play another model.
function refuseUnknown(config) {
  for (const [setting, value] of Object.entries(config)) {
    if (OF_ANY_VALUE.includes(setting) || VALUES[setting]?.includes(value)) continue;
    throw new Error(`gpt.js does not implement model.${setting}=${value}, so this page cannot show the model`);
  }
}

// Returns the weight and the bias of a part of the model.
function partOf(tensors, name) {
  return { weight: tensors[`${name}.weight`], bias: tensors[`${name}.bias`] };
}

const SHORTEST_COPY = 3; // characters of a match in model/copy_memory.py

const lists = (n) => Array.from({ length: n }, () => []);

// Returns row i of a weight (n, C).
const rowOf = ({ weight }, i, C) => weight.subarray(i * C, (i + 1) * C);

// A model with its key-value cache: after `read`, look up `logits`, `residuals` and `head` of each position.
// config: the settings of model/config.py, with the shapes of the layers. tensors: the weights by their names.
export class GPT {
  constructor(config, tensors) {
    refuseUnknown(config);
    const part = (name) => partOf(tensors, name);
    this.config = config;
    this.off = new Set();
    this.ids = []; // of the positions that are read; other lists may have entries of a text before beyond them
    this.logits = []; // (t, V)
    this.residuals = lists(1 + config.layers.length); // (L + 1, t, C): the embeddings, then each layer's output
    this.embeddings = { characters: part("token_embedding"), positions: part("position_embedding") }; // (V, C), (B, C)
    this.memory = { proj: part("memories.ngrams.proj") };
    for (const name of ["symbols", "counts", "prior", "scales", "rows.weight"]) {
      this.memory[name] = tensors[`memories.ngrams.${name}`]; // (V,), (rows,), (), (rows, 1), (rows, width)
    }
    this.copies = {
      followers: part("memories.copies.followers"),
      strengths: { weight: tensors["memories.copies.strengths"] },
    }; // (V, C), (n, C)
    this.norm = NORMS[config.norm];
    this.finalNorm = part("norm");
    this.lmHead = part("lm_head");
    this.layers = config.layers.map((shape, l) => this.makeLayer(shape, l, tensors));
  }

  // Returns layer l, which has H heads, K key heads and D channels per head: its weights and its lists.
  makeLayer({ n_head: H, n_kv_head: K, head_size: D }, l, tensors) {
    const { config } = this;
    const own = (name) => partOf(tensors, `blocks.${l}.${name}`);
    const lengths = Array.from(tensors[`blocks.${l}.attention.qk_norm.log_scale`] ?? [], Math.exp);
    return {
      H,
      K,
      D,
      scales: lengths.map((each) => each / Math.sqrt(D)), // of normalised queries, of each head
      slopes: config.positions === "alibi" ? alibiSlopes(H) : Array(H).fill(0),
      rotations: config.positions === "rope" ? rotaryTable(D, config.block_size) : null,
      qkv: own("attention.qkv"),
      proj: own("attention.proj"),
      up: own("mlp.up"),
      down: own("mlp.proj"),
      attentionNorm: own("attention_norm"),
      mlpNorm: own("mlp_norm"),
      conv: own("conv"),
      inputs: [], // (t, C)
      vectors: lists(H + 2 * K), // (t, D) of H queries, K keys and K values
      weights: lists(H), // (t, t + 1)
    };
  }

  // Switches heads ("L0H1") and memories ("n-grams", "copies") off, and all others on.
  switchOff(parts) {
    this.off = new Set(parts);
    this.ids.length = 0;
  }

  // Reads the window of a text, given as ids, and yields after each position, so that others may have a turn. Only what
  // differs from the text before is computed: a character at the end costs one position.
  *read(ids) {
    const window = ids.slice(windowStart(ids.length, this.config.block_size));
    let same = 0;
    while (same < window.length && window[same] === this.ids[same]) same++;
    this.ids.length = same;
    for (let t = same; t < window.length; t++) yield this.step(window[t]);
  }

  // Reads one more character and returns the logits (V,) of the next one.
  step(id) {
    const t = this.ids.push(id) - 1;
    let x = this.embed(t);
    this.residuals[0][t] = x;
    this.layers.forEach((layer, l) => {
      x = add(x, this.attention(this.norm(x, layer.attentionNorm), l, t));
      x = add(x, this.mlp(this.norm(x, layer.mlpNorm), layer, t));
      this.residuals[l + 1][t] = x;
    });
    this.logits[t] = this.predict(x);
    return this.logits[t];
  }

  // Returns the vector (C,) of the character at position t.
  embed(t) {
    const { n_embd: C, positions, ngrams, longest_copy } = this.config;
    let x = Float64Array.from(rowOf(this.embeddings.characters, this.ids[t], C));
    if (positions === "learned") x = add(x, rowOf(this.embeddings.positions, t, C));
    if (ngrams.length && !this.off.has("n-grams")) x = add(x, this.ngrams(t));
    if (longest_copy && !this.off.has("copies")) x = add(x, this.copied(t));
    return x;
  }

  // Returns what the memory of copies adds at position t, see model/copy_memory.py: (C,).
  copied(t) {
    let [length, place] = [0, 0]; // of the longest match, and of several the newest
    for (let s = 0; s < t; s++) {
      let n = 0;
      while (n < this.config.longest_copy && n <= s && this.ids[s - n] === this.ids[t - n]) n++;
      if (n >= length) [length, place] = [n, s];
    }
    const C = this.config.n_embd;
    if (length < SHORTEST_COPY) return new Float64Array(C);
    const follower = Float64Array.from(rowOf(this.copies.followers, this.ids[place + 1], C));
    const strength = rowOf(this.copies.strengths, length - SHORTEST_COPY, C);
    return follower.map((each, i) => each * strength[i]);
  }

  // Returns what the memory of n-grams knows about the last characters at position t: (C,).
  ngrams(t) {
    const { "rows.weight": rows, counts, prior, scales, proj } = this.memory;
    const width = rows.length / this.config.ngram_rows;
    const found = [];
    for (const row of this.ngramRows(t)) {
      const scale = (scales[row] * counts[row]) / (counts[row] + prior[0]);
      for (let i = 0; i < width; i++) found.push(scale * rows[row * width + i]);
    }
    return linear(Float64Array.from(found), proj);
  }

  // Returns the row of each n-gram that ends at position t, chosen by a hash of 64 bits (see model/ngrams.py).
  ngramRows(t) {
    const { ngrams, ngram_rows } = this.config;
    const size = BigInt(ngram_rows);
    const rows = [];
    let hash = 0n;
    for (let n = 1; n <= Math.max(...ngrams); n++) {
      const symbol = n <= t + 1 ? BigInt(this.memory.symbols[this.ids[t - n + 1]]) : 0n; // 0: a position before the window
      hash = BigInt.asIntN(64, (hash + symbol) * -7046029254386353131n);
      if (ngrams.includes(n)) rows.push(Number((((hash >> 34n) % size) + size) % size));
    }
    return rows;
  }

  // Returns what all heads of layer l read at position t, given x (C,) there: (C,).
  attention(x, l, t) {
    const { H, K, D, qkv, proj, vectors, weights, scales, rotations } = this.layers[l];
    const all = linear(x, qkv); // ((H + 2 K) D,)
    for (let i = 0; i < H + 2 * K; i++) {
      let y = all.slice(i * D, (i + 1) * D); // a query, a key or a value
      const isValue = i >= H + K;
      if (this.config.qk_norm && !isValue) y = rmsNorm(y, { factor: i < H ? scales[i] : 1 });
      if (rotations && !isValue) y = rotate(y, rotations[t]);
      vectors[i][t] = y;
    }
    const outputs = new Float64Array(H * D); // the heads side by side
    for (let h = 0; h < H; h++) {
      const read = this.head(l, h, t);
      weights[h][t] = read.weights;
      if (!this.off.has(`L${l}H${h}`)) outputs.set(read.output, h * D);
    }
    return linear(outputs, proj);
  }

  // Returns what head h of layer l computes at position t: its query and output (D,), keys and values (t + 1, D), and
  // the weights (t + 1,) of the positions up to t.
  head(l, h, t) {
    const { H, K, vectors, slopes } = this.layers[l];
    const group = Math.floor(h / (H / K));
    const query = vectors[h][t];
    const keys = vectors[H + group];
    const values = vectors[H + K + group];
    return { query, keys, values, ...attend(query, keys, values, t, slopes[h]) };
  }

  // Returns what a head's output (D,) adds to the residual stream: (C,).
  project(l, h, output) {
    const { H, D, proj } = this.layers[l];
    const alone = new Float64Array(H * D);
    alone.set(output, h * D);
    return linear(alone, { weight: proj.weight });
  }

  // Returns what the MLP of a layer makes of x (C,) at position t: (C,).
  mlp(x, { up, down, conv, inputs }, t) {
    inputs[t] = x;
    const mixed = this.config.conv_width > 1 ? causalConv(inputs, t, conv) : x;
    return linear(NONLINEARITIES[this.config.mlp](linear(mixed, up)), down); // (C,) -> (4 C,) -> (C,)
  }

  // Returns the logits (V,) of the last layer's output x (C,), or of an earlier layer's.
  predict(x) {
    const cap = this.config.logit_softcap;
    const logits = linear(this.norm(x, this.finalNorm), this.lmHead);
    return cap ? logits.map((each) => cap * Math.tanh(each / cap)) : logits;
  }
}

// Returns where the window of a text of n characters starts. A full window moves forward by half its size.
export function windowStart(n, B) {
  const stride = Math.max(1, Math.floor(B / 2));
  return n <= B ? 0 : Math.ceil((n - B) / stride) * stride;
}
