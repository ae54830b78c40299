// Trains the GPT of model/gpt.py: its forward and backward pass, and the optimisers of training/optim/.
// B windows of T positions, N = B T, C channels, H heads of D channels, V characters. Weights have the names and shapes
// (out, in) of PyTorch's. dx is the gradient of the loss with respect to x.

const EPSILON = 2 ** -23; // of RMSNorm, as in PyTorch
const INITIAL_SCALE = 12; // of the queries; see INITIAL_QK_SCALE in model/gpt.py
const MOMENTUM = 0.95; // of Muon
const BETA1 = 0.9; // of AdamW
const NEWTON_SCHULZ = [3.4445, -4.775, 2.0315]; // see training/optim/muon.py

// A matrix in a memory that many share. A view is a part of another matrix, or its transpose, without a copy.
class Matrix {
  constructor(values, rows, columns, rowStride = columns, columnStride = 1) {
    Object.assign(this, { values, rows, columns, rowStride, columnStride });
  }

  get T() {
    return new Matrix(this.values, this.columns, this.rows, this.columnStride, this.rowStride);
  }

  part(row, rows, column, columns) {
    const start = row * this.rowStride + column * this.columnStride;
    return new Matrix(this.values.subarray(start), rows, columns, this.rowStride, this.columnStride);
  }

  // Returns the first numbers of this matrix as another one.
  as(rows, columns) {
    return new Matrix(this.values.subarray(0, rows * columns), rows, columns);
  }
}

const mapValues = (object, f) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, f(value)]));

// Returns a tree of objects with a matrix for each shape in it, one after another in one memory; allocate(n) returns n
// numbers.
export function makeMatrices(shapes, allocate) {
  const inPlace = (tree, f) => (typeof tree[0] === "number" ? f(tree) : mapValues(tree, (each) => inPlace(each, f)));
  const sizeOf = ([rows, columns]) => 16 * Math.ceil((rows * columns) / 16);
  const sizes = [];
  inPlace(shapes, (shape) => sizes.push(sizeOf(shape)));
  const memory = allocate(sizes.reduce((a, b) => a + b));
  let end = 0;
  return inPlace(shapes, ([rows, columns]) => {
    const start = end;
    end += sizeOf([rows, columns]);
    return new Matrix(memory.subarray(start, start + rows * columns), rows, columns);
  });
}

// C = A B or, if `adds`, C += A B: A (M, K) with any strides, B (K, N), C (M, N).
export function plainProduct(C, A, B, adds = false) {
  const [c, a, b] = [C.values, A.values, B.values];
  for (let i = 0; i < C.rows; i++) {
    const row = i * C.rowStride;
    if (!adds) c.fill(0, row, row + C.columns);
    for (let k = 0; k < A.columns; k++) {
      const x = a[i * A.rowStride + k * A.columnStride];
      const from = k * B.rowStride;
      for (let j = 0; j < C.columns; j++) c[row + j] += x * b[from + j];
    }
  }
}

// Returns how a model computes, in float32 by kernels.wat, given as a WebAssembly.Module: allocate(n) returns its memory,
// and `multiply` does what `plainProduct` does. It leaves the last rows and columns to that.
export function inWebAssembly(module) {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const kernel = new WebAssembly.Instance(module, { page: { memory } }).exports.multiply;
  const allocate = (n) => {
    memory.grow(Math.ceil((4 * n) / 2 ** 16));
    return new Float32Array(memory.buffer);
  };
  const multiply = (C, A, B, adds = false) => {
    const [M, N, K] = [C.rows & ~3, C.columns & ~7, A.columns];
    if (M && N) {
      const [a, b, c] = [A, B, C].map(({ values }) => values.byteOffset);
      const strides = [A.rowStride, A.columnStride, B.rowStride, C.rowStride].map((stride) => 4 * stride);
      kernel(M, N, K, a, strides[0], strides[1], b, strides[2], c, strides[3], adds);
    }
    const [rows, columns] = [C.rows - M, C.columns - N];
    if (columns) plainProduct(C.part(0, M, N, columns), A.part(0, M, 0, K), B.part(0, K, N, columns), adds);
    if (rows) plainProduct(C.part(M, rows, 0, C.columns), A.part(M, rows, 0, K), B, adds);
  };
  return { allocate, multiply };
}

// y (columns, rows) = x (rows, columns), transposed.
function transpose({ values: x, rows, columns, rowStride }, { values: y }) {
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) y[j * rows + i] = x[i * rowStride + j];
  }
}

// y = x / sqrt(mean(x^2) + eps), row by row; `factors` keeps what each row was multiplied by.
function rmsNorm({ values: x, rows, columns }, { values: y }, { values: factors }) {
  for (let i = 0; i < rows; i++) {
    const row = i * columns;
    let sum = 0;
    for (let j = row; j < row + columns; j++) sum += x[j] * x[j];
    const factor = 1 / Math.sqrt(sum / columns + EPSILON);
    for (let j = row; j < row + columns; j++) y[j] = x[j] * factor;
    factors[i] = factor;
  }
}

// dx += the gradient through y = rmsNorm(x), given dy.
function rmsNormBackward({ values: dy, rows, columns }, { values: y }, { values: factors }, { values: dx }) {
  for (let i = 0; i < rows; i++) {
    const row = i * columns;
    let sum = 0;
    for (let j = row; j < row + columns; j++) sum += dy[j] * y[j];
    const mean = sum / columns;
    for (let j = row; j < row + columns; j++) dx[j] += factors[i] * (dy[j] - y[j] * mean);
  }
}

// Turns scores (T, T) into weights, in place: each row sums to 1 over the positions up to its own, and later ones get 0.
function causalSoftmax({ values: x, rows: T }) {
  for (let t = 0; t < T; t++) {
    const [row, end] = [t * T, t * T + t + 1];
    let largest = x[row];
    for (let s = row; s < end; s++) if (x[s] > largest) largest = x[s];
    let sum = 0;
    for (let s = row; s < end; s++) sum += x[s] = Math.exp(x[s] - largest);
    const share = 1 / sum;
    for (let s = row; s < end; s++) x[s] *= share;
    x.fill(0, end, row + T);
  }
}

// Turns the gradient of the weights (T, T) into that of the scores, in place.
function causalSoftmaxBackward({ values: dx, rows: T }, { values: weights }) {
  for (let t = 0; t < T; t++) {
    const [row, end] = [t * T, t * T + t + 1];
    let mean = 0;
    for (let s = row; s < end; s++) mean += weights[s] * dx[s];
    for (let s = row; s < end; s++) dx[s] = weights[s] * (dx[s] - mean);
    dx.fill(0, end, row + T);
  }
}

// Returns the shape of each weight, by its name.
function shapesOf({ n_layer: L, n_head: H, n_embd: C }, V) {
  const shapes = { "token_embedding.weight": [V, C] };
  for (let l = 0; l < L; l++) {
    shapes[`blocks.${l}.attention.qkv.weight`] = [3 * C, C];
    shapes[`blocks.${l}.attention.qk_norm.log_scale`] = [1, H];
    shapes[`blocks.${l}.attention.proj.weight`] = [C, C];
    shapes[`blocks.${l}.mlp.up.weight`] = [4 * C, C];
    shapes[`blocks.${l}.mlp.proj.weight`] = [C, 4 * C];
  }
  shapes["lm_head.weight"] = [V, C];
  return shapes;
}

// A GPT that learns. config: settings of model/config.py, such as those of configs/page.yaml. B: windows of a batch.
export class LearningGPT {
  constructor(config, V, B, { allocate, multiply }) {
    const { n_layer: L, n_head: H, n_embd: C, block_size: T } = config;
    const [N, D] = [B * T, C / H];
    const ofAttention = { input: [N, C], factors: [N, 1], qkv: [N, 3 * C], norms: [N, 2 * H], qk: [N, 2 * C] };
    const ofHeads = { weights: [B * H * T, T], outputs: [N, C] };
    const ofMLP = { mlpInput: [N, C], mlpFactors: [N, 1], hidden: [N, 4 * C], active: [N, 4 * C] };
    const ofInner = { hidden: [N, 4 * C], qkv: [N, 3 * C], qk: [N, 2 * C], outputs: [N, C], weights: [T, T] };
    const shapes = {
      parameters: mapValues(shapesOf(config, V), ([m, n]) => {
        return { weight: [m, n], gradient: [m, n], first: [m, n], second: [m, n], transposed: [n, m] };
      }),
      layers: Array(L).fill({ ...ofAttention, ...ofHeads, ...ofMLP }),
      gradients: { x: [N, C], normed: [N, C], logits: [N, V], ...ofInner },
      spare: { head: [D, T], x: [C, 4 * C], next: [C, 4 * C], gram: [C, C], factor: [C, C] },
      ends: { x: [N, C], final: [N, C], factors: [N, 1], logits: [N, V], cosines: [T, D / 2], sines: [T, D / 2] },
    };
    const { ends, layers, ...others } = makeMatrices(shapes, allocate);
    Object.assign(this, { config, V, B, T, C, H, D, N, multiply, step: 0, ...ends, ...others });
    this.layers = Object.values(layers).map((matrices, l) => this.makeLayer(l, matrices));
    for (let t = 0; t < T; t++) {
      for (let i = 0; i < D / 2; i++) {
        const angle = t * 10_000 ** ((-2 * i) / D); // of rotary positions
        this.cosines.values[(t * D) / 2 + i] = Math.cos(angle);
        this.sines.values[(t * D) / 2 + i] = Math.sin(angle);
      }
    }
  }

  // Returns layer l: its matrices, its parameters, and views (T, D) for each head in each window.
  makeLayer(l, matrices) {
    const { B, H, T, C, D, gradients } = this;
    const parameter = (name) => this.parameters[`blocks.${l}.${name}`];
    const heads = Array.from({ length: B * H }, (_, i) => {
      const [b, h] = [Math.floor(i / H), i % H];
      const view = (matrix, third = 0) => matrix.part(b * T, T, third * C + h * D, D);
      const own = { q: view(matrices.qk), k: view(matrices.qk, 1), v: view(matrices.qkv, 2) };
      const ds = { dq: view(gradients.qk), dk: view(gradients.qk, 1), dv: view(gradients.qkv, 2) };
      const outputs = { y: view(matrices.outputs), dy: view(gradients.outputs) };
      return { ...own, ...ds, ...outputs, weights: matrices.weights.part(i * T, T, 0, T) };
    });
    const ofAttention = { toHeads: parameter("attention.qkv.weight"), toOutput: parameter("attention.proj.weight") };
    const ofMLP = { up: parameter("mlp.up.weight"), down: parameter("mlp.proj.weight") };
    return { ...matrices, heads, scales: parameter("attention.qk_norm.log_scale"), ...ofAttention, ...ofMLP };
  }

  // Draws the first weights, as `GPT.init_weights` explains; normal() is from the standard normal distribution.
  initialise(normal) {
    for (const [name, { weight }] of Object.entries(this.parameters)) {
      const ofInner = /qkv|up/.test(name) ? weight.columns ** -0.5 : 0;
      const std = name.startsWith("token_embedding") ? 0.3 : ofInner;
      for (let i = 0; i < weight.values.length; i++) weight.values[i] = std ? std * normal() : 0;
      if (name.endsWith("log_scale")) weight.values.fill(Math.log(INITIAL_SCALE));
    }
  }

  // Returns the mean loss, in nats, of predicting targets (N,) from ids (N,); a target of -1 does not count. Leaves the
  // logits (N, V) in `logits`, and their gradient in `gradients`.
  forward(ids, targets) {
    const { x, final, factors, logits, C } = this;
    for (const { weight, transposed } of Object.values(this.parameters)) transpose(weight, transposed);
    const embeddings = this.parameters["token_embedding.weight"].weight.values;
    ids.forEach((id, n) => x.values.set(embeddings.subarray(id * C, (id + 1) * C), n * C));
    for (const layer of this.layers) {
      rmsNorm(x, layer.input, layer.factors);
      this.attention(layer);
      rmsNorm(x, layer.mlpInput, layer.mlpFactors);
      this.mlp(layer);
    }
    rmsNorm(x, final, factors);
    this.multiply(logits, final, this.parameters["lm_head.weight"].transposed);
    return this.loss(targets);
  }

  // x (N, C) += what all heads of a layer read there.
  attention({ input, qkv, heads, outputs, toHeads, toOutput, ...layer }) {
    this.multiply(qkv, input, toHeads.transposed); // queries, keys and values side by side
    this.rotate(qkv, layer);
    const transposed = this.spare.head;
    for (const { q, k, v, weights, y } of heads) {
      transpose(k, transposed);
      this.multiply(weights, q, transposed);
      causalSoftmax(weights);
      this.multiply(y, weights, v);
    }
    this.multiply(this.x, outputs, toOutput.transposed, true);
  }

  // Normalises queries and keys to length sqrt(D), and turns channels i and i + D/2 by the i-th angle of the position.
  // A query is also multiplied by exp(log_scale) / D, so that its product with a key is their score.
  rotate({ values: qkv }, { norms: { values: norms }, qk: { values: qk }, scales }) {
    const { N, T, C, H, D } = this;
    const half = D / 2;
    const [cosines, sines] = [this.cosines.values, this.sines.values];
    for (let i = 0; i < 2 * H; i++) {
      const scale = i < H ? Math.exp(scales.weight.values[i]) / D : 1;
      for (let n = 0; n < N; n++) {
        const from = n * 3 * C + i * D;
        const to = n * 2 * C + i * D;
        const angle = (n % T) * half;
        let sum = 0;
        for (let j = from; j < from + D; j++) sum += qkv[j] * qkv[j];
        const norm = 1 / Math.sqrt(sum / D + EPSILON);
        norms[n * 2 * H + i] = norm;
        for (let j = 0; j < half; j++) {
          const a = qkv[from + j] * norm * scale;
          const b = qkv[from + half + j] * norm * scale;
          const cos = cosines[angle + j];
          const sin = sines[angle + j];
          qk[to + j] = a * cos - b * sin;
          qk[to + half + j] = b * cos + a * sin;
        }
      }
    }
  }

  // x += down(relu(up(input))^2).
  mlp({ mlpInput, hidden, active, up, down }) {
    this.multiply(hidden, mlpInput, up.transposed);
    const [h, y] = [hidden.values, active.values];
    for (let i = 0; i < h.length; i++) y[i] = 0.5 * h[i] * (h[i] + Math.abs(h[i])); // no branch: 4 times as fast
    this.multiply(this.x, active, down.transposed, true);
  }

  // Caps the logits and returns the mean cross-entropy; see `forward`.
  loss(targets) {
    const { V, config, logits } = this;
    const [y, d] = [logits.values, this.gradients.logits.values];
    const cap = config.logit_softcap;
    const n = targets.reduce((count, target) => count + (target >= 0), 0);
    let total = 0;
    targets.forEach((target, i) => {
      const [row, end] = [i * V, (i + 1) * V];
      let sum = 0; // of exp(y), which the cap keeps small
      for (let j = row; j < end; j++) {
        y[j] = cap * Math.tanh(y[j] / cap);
        sum += d[j] = Math.exp(y[j]);
      }
      if (target >= 0) total += Math.log(sum) - y[row + target];
      const share = target >= 0 ? 1 / (sum * n) : 0;
      for (let j = row; j < end; j++) d[j] *= share * (1 - (y[j] / cap) ** 2);
      if (target >= 0) d[row + target] -= (1 - (y[row + target] / cap) ** 2) / n;
    });
    return total / n;
  }

  // Computes the gradient of every weight, after `forward` with the same ids.
  backward(ids) {
    const { C, final, factors, gradients } = this;
    const { x: dx, normed, logits } = gradients;
    this.linearBackward(normed, logits, final, this.parameters["lm_head.weight"]);
    dx.values.fill(0);
    rmsNormBackward(normed, final, factors, dx);
    for (const layer of this.layers.toReversed()) {
      this.mlpBackward(layer);
      rmsNormBackward(normed, layer.mlpInput, layer.mlpFactors, dx);
      this.attentionBackward(layer);
      rmsNormBackward(normed, layer.input, layer.factors, dx);
    }
    const d = this.parameters["token_embedding.weight"].gradient.values.fill(0);
    ids.forEach((id, n) => {
      for (let i = 0; i < C; i++) d[id * C + i] += dx.values[n * C + i];
    });
  }

  // The gradients through y = x W^T: dW = dy^T x and dx = dy W.
  linearBackward(dx, dy, x, { weight, gradient }) {
    this.multiply(gradient, dy.T, x);
    this.multiply(dx, dy, weight);
  }

  mlpBackward({ mlpInput, hidden, active, up, down }) {
    const { x: dx, normed, hidden: dHidden } = this.gradients;
    this.linearBackward(dHidden, dx, active, down);
    const [h, d] = [hidden.values, dHidden.values];
    for (let i = 0; i < h.length; i++) d[i] *= h[i] + Math.abs(h[i]);
    this.linearBackward(normed, dHidden, mlpInput, up);
  }

  attentionBackward({ input, heads, outputs, toHeads, toOutput, ...layer }) {
    const { x: dx, normed, outputs: dOutputs, weights: dWeights, qkv: dqkv } = this.gradients;
    this.linearBackward(dOutputs, dx, outputs, toOutput);
    const transposed = this.spare.head;
    for (const { q, k, v, weights, dq, dk, dv, dy } of heads) {
      this.multiply(dv, weights.T, dy);
      transpose(v, transposed);
      this.multiply(dWeights, dy, transposed);
      causalSoftmaxBackward(dWeights, weights);
      this.multiply(dq, dWeights, k);
      this.multiply(dk, dWeights.T, q);
    }
    this.rotateBackward(layer);
    this.linearBackward(normed, dqkv, input, toHeads);
  }

  rotateBackward({ qkv: { values: qkv }, norms: { values: norms }, scales }) {
    const { N, T, C, H, D } = this;
    const half = D / 2;
    const [cosines, sines] = [this.cosines.values, this.sines.values];
    const [dqkv, dqk] = [this.gradients.qkv.values, this.gradients.qk.values];
    for (let i = 0; i < 2 * H; i++) {
      const scale = i < H ? Math.exp(scales.weight.values[i]) / D : 1;
      let dScale = 0;
      for (let n = 0; n < N; n++) {
        const at = n * 3 * C + i * D;
        const from = n * 2 * C + i * D;
        const angle = (n % T) * half;
        const norm = norms[n * 2 * H + i];
        let sum = 0; // of the products with the normalised vector
        for (let j = 0; j < half; j++) {
          const x = dqk[from + j] * scale;
          const y = dqk[from + half + j] * scale;
          const cos = cosines[angle + j];
          const sin = sines[angle + j];
          const a = x * cos + y * sin;
          const b = y * cos - x * sin;
          sum += norm * (a * qkv[at + j] + b * qkv[at + half + j]);
          dqkv[at + j] = a;
          dqkv[at + half + j] = b;
        }
        for (let j = at; j < at + D; j++) dqkv[j] = norm * (dqkv[j] - (qkv[j] * norm * sum) / D);
        dScale += sum;
      }
      if (i < H) scales.gradient.values[i] = dScale;
    }
  }

  // Changes the weights once, with learning rates of this fraction of their peaks. optim: settings of training/config.py.
  update(optim, factor) {
    this.step += 1;
    for (const [name, parameter] of Object.entries(this.parameters)) {
      if (/(qkv|proj|up)\.weight/.test(name)) this.muon(parameter, factor * optim.muon_lr, optim.weight_decay);
      else this.adamw(parameter, factor * optim.lr, optim, name.startsWith("lm_head") ? optim.lm_head_weight_decay : 0);
    }
  }

  // A step of AdamW (Loshchilov and Hutter, 2019).
  adamw({ weight, gradient, first, second }, lr, { beta2 }, decay) {
    const [w, g, m, v] = [weight, gradient, first, second].map(({ values }) => values);
    const [unbias1, unbias2] = [1 - BETA1 ** this.step, 1 - beta2 ** this.step];
    for (let i = 0; i < w.length; i++) {
      m[i] += (1 - BETA1) * (g[i] - m[i]);
      v[i] += (1 - beta2) * (g[i] * g[i] - v[i]);
      w[i] -= lr * decay * w[i] + ((lr / unbias1) * m[i]) / (Math.sqrt(v[i] / unbias2) + 1e-8);
    }
  }

  // A step of Muon with cautious weight decay; see training/optim/muon.py.
  muon({ weight, gradient, first }, lr, decay) {
    const { rows, columns } = weight;
    const [w, g, m] = [weight, gradient, first].map(({ values }) => values);
    const ahead = this.spare.next.as(rows, columns);
    for (let i = 0; i < w.length; i++) {
      m[i] += (1 - MOMENTUM) * (g[i] - m[i]);
      ahead.values[i] = g[i] + MOMENTUM * (m[i] - g[i]);
    }
    const update = this.orthogonalise(ahead).values;
    const size = lr * Math.sqrt(Math.max(1, rows / columns));
    for (let i = 0; i < w.length; i++) w[i] -= size * update[i] + Number(w[i] * update[i] > 0) * lr * decay * w[i];
  }

  // Returns about the nearest matrix whose singular values are 1, given one that is in spare.next.
  orthogonalise(matrix) {
    const { spare, multiply } = this;
    const isWide = matrix.columns > matrix.rows;
    const [rows, columns] = isWide ? [matrix.columns, matrix.rows] : [matrix.rows, matrix.columns];
    let [x, next] = [spare.x, spare.next].map((each) => each.as(rows, columns)); // tall ones
    const [gram, factor] = [spare.gram, spare.factor];
    if (isWide) transpose(matrix, x);
    else x.values.set(matrix.values);
    let squares = 0;
    for (const each of matrix.values) squares += each * each;
    for (let i = 0; i < x.values.length; i++) x.values[i] /= Math.sqrt(squares) + 1e-7;
    const [a, b, c] = NEWTON_SCHULZ;
    for (let iteration = 0; iteration < 5; iteration++) {
      multiply(gram, x.T, x);
      multiply(factor, gram, gram); // then a I + b gram + c gram^2
      for (let i = 0; i < gram.values.length; i++) factor.values[i] = c * factor.values[i] + b * gram.values[i];
      for (let i = 0; i < columns; i++) factor.values[i * columns + i] += a;
      multiply(next, x, factor);
      [x, next] = [next, x];
    }
    if (!isWide) return x;
    const result = next.as(columns, rows);
    transpose(x, result);
    return result;
  }

  // Takes a step on windows of a text, ids (n,), that begin at random places, and returns the loss before it.
  learn(ids, starts, optim, factor) {
    const { inputs, targets } = this.windows(ids, starts);
    const loss = this.forward(inputs, targets);
    this.backward(inputs);
    this.update(optim, factor);
    return loss;
  }

  // Returns the inputs and targets (N,) of windows that start at these places and have at most `length` characters; a
  // target that a window or the text lacks is -1.
  windows(ids, starts, length = this.T) {
    const { N, T } = this;
    const [inputs, targets] = [new Int32Array(N), new Int32Array(N).fill(-1)];
    starts.forEach((start, b) => {
      const end = Math.min(start + length, ids.length - 1);
      inputs.set(ids.subarray(start, end), b * T);
      targets.set(ids.subarray(start + 1, end + 1), b * T);
    });
    return { inputs, targets };
  }

  // Returns copies of the weights, by their names.
  copyWeights() {
    return mapValues(this.parameters, ({ weight }) => weight.values.slice());
  }
}
