// Answers the page's questions about models that learn, in a thread of its own.

const MOST_BYTES = 20_000_000; // of a text
const FEWEST = 1000; // characters of a text
const MOST_DIFFERENT = 10_000; // characters
const OPENING = 160; // characters of the held-out text that the page begins with
const PART = 4096; // held-out characters of an evaluation while the models learn
const WHOLE = 200_000; // of the last evaluation, at most
const BETWEEN_MS = 1000; // evaluations, at least,
const EVALUATION_SHARE = 0.05; // which take at most this share of the time
let kernels; // the WebAssembly.Module
let text; // { V, learned, heldOut }: the ids of the first nine tenths, and of the rest after one before it
let models; // each { gpt, step, best: { loss, step, weights }, trainLosses }; step: of its weights
let run; // see `begin`

const TRAINER = {
  // Takes the bytes of kernels.wat, assembled, in base64: the first one that the browser knows is used.
  async start({ kernels: assembled }) {
    const bytes = assembled.map((letters) => Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0)));
    const known = bytes.find((each) => globalThis.WebAssembly?.validate(each));
    const advice = "This browser cannot train: it lacks WebAssembly SIMD, which browsers have since 2023.";
    if (!known) throw new Error(advice);
    kernels = new WebAssembly.Module(known);
  },

  // Reads the bytes of a text, and returns what is to be known of it. lines: losses on the held-out part, in nats.
  async open({ bytes }) {
    const points = decode(bytes);
    const n = points.length;
    if (n < FEWEST) throw new Error(`The text has ${n} characters; a model needs ${FEWEST} or more.`);
    const known = Uint32Array.from(new Set(points)).sort();
    const V = known.length;
    if (V < 2) throw new Error("The text repeats one character; there is nothing to learn.");
    if (V > MOST_DIFFERENT) throw new Error(`The text has ${V} different characters, more than ${MOST_DIFFERENT}.`);
    const codes = new Map(Array.from(known, (point, id) => [point, id]));
    const ids = Uint16Array.from(points, (point) => codes.get(point));
    const cut = Math.floor(n * (1 - 0.1));
    text = { V, learned: ids.subarray(0, cut), heldOut: ids.subarray(cut - 1) };
    const near = points.subarray(cut, cut + 10 * OPENING);
    const line = near.indexOf(0x0a) + 1; // where the next line begins
    const start = line < near.length - OPENING ? line : 0;
    const [characters, opening] = [known, near.subarray(start, start + OPENING)].map((x) => String.fromCodePoint(...x));
    return { characters, n, heldOut: n - cut, opening, lines: countedLosses(text) };
  },

  // Makes models for the text, with new weights or with those given, after so many steps. models: their settings.
  async begin({ models: configs, optim, batch, seed, weights, step = 0 }) {
    const T = configs[0].block_size;
    const advice = `The text is too short: a context of ${T} needs ${10 * (T + 1)} characters.`;
    if (text.heldOut.length <= T) throw new Error(advice);
    models = configs.map((config, i) => {
      const gpt = new LearningGPT(config, text.V, batch, inWebAssembly(kernels));
      if (weights) gpt.setWeights(weights[i]);
      else gpt.initialise(makeNormal(makeRandom(seed)));
      return { gpt, step, best: { loss: Infinity }, trainLosses: [] };
    });
    run = { optim, batch, T, uniform: makeRandom(~seed), steps: step, seconds: 0, from: 0, until: 0, firstStep: step };
    run.began = step;
  },

  // Trains until the time is over, or until `pause`. Without `seconds`, it goes on with the time that is left. Passes on
  // the progress after each evaluation.
  async train({ seconds }, pass) {
    if (seconds) Object.assign(run, { from: run.seconds, until: run.seconds + seconds, firstStep: run.steps });
    const own = run;
    own.isPaused = false;
    let before_ms = performance.now();
    let evaluateAt_s = own.seconds;
    while (own.seconds < own.until && !own.isPaused && own === run) {
      if (own.seconds >= evaluateAt_s) {
        const began_ms = performance.now();
        pass(progress());
        const took_ms = performance.now() - began_ms;
        const pause_ms = Math.min(took_ms / EVALUATION_SHARE, 500 * own.seconds); // more of them while much changes
        evaluateAt_s = own.seconds + Math.max(BETWEEN_MS, pause_ms) / 1000;
      }
      learn();
      await letOthersAsk();
      const now_ms = performance.now();
      own.seconds += (now_ms - before_ms) / 1000;
      before_ms = now_ms;
    }
    return progress();
  },

  async longer({ seconds }) {
    run.until += seconds;
  },

  async pause() {
    run.isPaused = true;
  },

  // Returns the weights of each model, and their step.
  async look() {
    return models.map(({ gpt, step }) => ({ step, weights: gpt.copyWeights() }));
  },

  // Returns the loss of each model over the held-out part, and over how many of its characters.
  async evaluate() {
    return models.map(({ gpt }) => heldOutLoss(gpt, WHOLE));
  },

  // Gives each model the weights of its best evaluation.
  async goBack() {
    for (const model of models) {
      model.gpt.setWeights(model.best.weights);
      model.step = model.best.step;
    }
    return progress();
  },
};

answerWith(TRAINER);

// Returns the code points of a text in UTF-8. Throws an error if it is none.
function decode(bytes) {
  if (bytes.byteLength > MOST_BYTES) throw new Error(`The text has more than ${MOST_BYTES / 1e6} MB.`);
  let string;
  try {
    string = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("The text is not in UTF-8; save it as UTF-8 in an editor.");
  }
  if (string.includes("\0")) throw new Error("This is not text, but other data.");
  const points = new Uint32Array(string.length);
  let n = 0;
  for (const character of string) points[n++] = character.codePointAt(0);
  return points.subarray(0, n);
}

// Returns the losses of guessing evenly, of counts of characters, and of counts of pairs, on the held-out part.
function countedLosses({ V, learned, heldOut }) {
  const counts = new Float64Array(V);
  const pairs = new Map();
  for (let i = 0; i < learned.length; i++) {
    const pair = learned[i] * V + learned[i + 1];
    counts[learned[i]] += 1;
    if (i + 1 < learned.length) pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  const share = (id) => (counts[id] + 1) / (learned.length + V);
  const shareAfter = (before, id) => ((pairs.get(before * V + id) ?? 0) + share(id)) / (counts[before] + 1);
  let [single, double] = [0, 0];
  for (let i = 1; i < heldOut.length; i++) {
    single -= Math.log(share(heldOut[i]));
    double -= Math.log(shareAfter(heldOut[i - 1], heldOut[i]));
  }
  const n = heldOut.length - 1;
  return { even: Math.log(V), single: single / n, pairs: double / n };
}

// Returns the fraction of the peak learning rates; it falls over the time that is left, as `lr_factor` does over steps.
function rateFactor({ optim, steps, firstStep, seconds, from, until }) {
  const warmup = Math.min(1, (steps - firstStep + 1) / optim.warmup_steps);
  const left = (until - seconds) / (until - from) / optim.decay_fraction;
  return warmup * (optim.final_lr_fraction + (1 - optim.final_lr_fraction) * Math.min(1, left));
}

// Takes a step with every model, on the same windows.
function learn() {
  const { uniform, batch, T } = run;
  const last = text.learned.length - 1 - T;
  const starts = Array.from({ length: batch }, () => Math.floor((1 - uniform()) * (last + 1)));
  const factor = rateFactor(run);
  run.steps += 1;
  for (const model of models) {
    model.trainLosses.push(model.gpt.learn(text.learned, starts, run.optim, factor));
    model.step = run.steps;
  }
}

// Evaluates the models, and returns where they are. losses: of each, in training since the last evaluation (NaN: without
// a step), on the held-out part, and the best one there.
function progress() {
  const { batch, T, steps, began, seconds, until } = run;
  const characters = (steps - began) * batch * T;
  const losses = models.map((model) => {
    const { gpt, step, best, trainLosses } = model;
    const { loss } = heldOutLoss(gpt, PART);
    if (loss < best.loss) model.best = { loss, step, weights: gpt.copyWeights() };
    const train = trainLosses.reduce((a, b) => a + b, 0) / trainLosses.length;
    model.trainLosses = [];
    return { train, heldOut: loss, best: model.best.loss, bestStep: model.best.step };
  });
  const passes = characters / text.learned.length;
  return { steps, characters, seconds, until, isOver: seconds >= until, passes, losses };
}

// Returns the mean loss over about `most` characters of the held-out part, in the windows of `evaluation_windows` in
// data/batches.py, and over how many.
function heldOutLoss(gpt, most) {
  const { T, B } = gpt;
  const all = text.heldOut.length - 1;
  const full = Math.floor(all / T);
  const some = Math.min(full, Math.ceil(most / T));
  const places = Array.from({ length: some }, (_, i) => Math.floor((i * full) / some) * T);
  if (most > full * T && all % T) places.push(full * T); // a shorter window
  let [sum, n] = [0, 0];
  for (let i = 0; i < places.length; i += B) {
    const { inputs, targets } = gpt.windows(text.heldOut, places.slice(i, i + B));
    const known = targets.reduce((count, target) => count + (target >= 0), 0);
    sum += known * gpt.forward(inputs, targets);
    n += known;
  }
  return { loss: sum / n, n };
}
