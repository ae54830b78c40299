// Answers the page's questions about models that learn, in a thread of its own.

import { makeNormal, makeRandom } from "../compute/random.js";
import { LearningGPT, inWebAssembly } from "../compute/train.js";
import { answerWith, letOthersAsk } from "./answer.js";

const MOST_BYTES = 20_000_000; // of a text
const FEWEST = 1000; // characters of a text
const OPENING = 160; // characters of the held-out text for a box whose text the models cannot read
const SPAN = 128; // held-out characters in a row that are evaluated,
const SPANS = 64; // and how many such rows there are at most, spread evenly
const FIRST = 4096; // characters that are learned before the first evaluation; the next ones follow at each doubling,
const EVERY_S = 1; // and after this time at most,
const EARLY_S = 15; // which grows after this one, so that evaluations take
const SHARE = 0.05; // at most this share of the time
const LONGEST_S = 5; // of a step; a longer one has slept
let kernel; // the WebAssembly.Module
let text; // { V, learned, heldOut, spans }: ids of the first nine tenths, of the rest after one before it, rows' starts
let models; // each { gpt, step, best: { loss, step, characters, weights }, trainLosses }
let run; // see `begin`

const TRAINER = {
  // Reads the bytes of a text, and returns what is to be known of it, and its bytes with line feeds as line ends.
  // lines: losses of simple guesses in nats, on the characters that are evaluated.
  // kernels: the bytes of kernels.wat, assembled, in base64; the first ones that the browser knows are used.
  async open({ bytes, kernels }) {
    compileFirst(kernels);
    const string = decode(bytes);
    const points = Uint32Array.from(string, (character) => character.codePointAt(0));
    const n = points.length;
    if (n < FEWEST) throw new Error(`The text has ${n} characters; a model needs ${FEWEST} or more.`);
    const known = Uint32Array.from(new Set(points)).sort();
    const V = known.length;
    const codes = new Map(Array.from(known, (point, id) => [point, id]));
    const ids = Uint16Array.from(points, (point) => codes.get(point));
    const cut = Math.floor(n * (1 - 0.1));
    const heldOut = ids.subarray(cut - 1);
    text = { V, learned: ids.subarray(0, cut), heldOut, spans: spansOf(heldOut.length - 1) };
    return {
      characters: String.fromCodePoint(...known),
      n,
      opening: String.fromCodePoint(...points.subarray(cut, cut + OPENING)),
      lines: countedLosses(text),
      bytes: new TextEncoder().encode(string),
    };
  },

  // Makes models for the text. models: their settings.
  async begin({ models: configs, optim, batch, seed }) {
    const T = configs[0].block_size;
    const advice = `The text is too short: a context of ${T} needs ${10 * (T + 1)} characters.`;
    if (text.heldOut.length <= T) throw new Error(advice);
    models = configs.map((config) => {
      const gpt = new LearningGPT(config, text.V, batch, inWebAssembly(kernel));
      gpt.initialise(makeNormal(makeRandom(seed)));
      return { gpt, step: 0, best: { loss: Infinity }, trainLosses: [] };
    });
    run = { optim, batch, T, uniform: makeRandom(~seed), steps: 0, seconds: 0, from: 0, until: 0, firstStep: 0 };
    Object.assign(run, { evaluated: FIRST / 2, evaluateAt_s: 0 });
  },

  // Trains until the time is over, or until `pause`. Without `seconds`, it goes on with the time that is left. Passes on
  // the progress after each evaluation.
  async train({ seconds }, pass) {
    if (seconds) Object.assign(run, { from: run.seconds, until: run.seconds + seconds, firstStep: run.steps });
    run.isPaused = false;
    pass(evaluated());
    let before_ms = performance.now();
    while (run.seconds < run.until && !run.isPaused) {
      learn();
      await letOthersAsk();
      if (charactersOf(run) >= 2 * run.evaluated || run.seconds >= run.evaluateAt_s) pass(evaluated());
      const now_ms = performance.now();
      run.seconds += Math.min((now_ms - before_ms) / 1000, LONGEST_S);
      before_ms = now_ms;
    }
    return progress();
  },

  async pause() {
    run.isPaused = true;
  },

  // Returns the weights of each model, their step and the characters read, as they are now or at the best evaluation;
  // then with the loss.
  async look({ isBest }) {
    const characters = charactersOf(run);
    return models.map(({ gpt, step, best }) => (isBest ? best : { step, characters, weights: gpt.copyWeights() }));
  },
};

answerWith(TRAINER);

function compileFirst(kernels) {
  const bytes = kernels.map((letters) => Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0)));
  const known = bytes.find((each) => globalThis.WebAssembly?.validate(each));
  const advice = "This browser cannot train: it lacks WebAssembly SIMD, which browsers have since 2023.";
  if (!known) throw new Error(advice);
  kernel = new WebAssembly.Module(known);
}

// Returns a text in UTF-8, with line feeds in place of other line ends. Throws an error if it is none.
function decode(bytes) {
  if (bytes.byteLength > MOST_BYTES) throw new Error(`The text has more than ${MOST_BYTES / 1e6} MB.`);
  try {
    const string = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return string.replaceAll(/\r\n?/g, "\n");
  } catch {
    throw new Error("This is no text in UTF-8; an editor can save a text as UTF-8.");
  }
}

// Returns where the spans of n held-out characters start. All characters are in one if they are few.
function spansOf(n) {
  const full = Math.floor(n / SPAN);
  const some = Math.min(full, SPANS);
  const starts = Array.from({ length: some }, (_, i) => Math.floor((i * full) / some) * SPAN);
  return full <= SPANS && n % SPAN ? [...starts, full * SPAN] : starts;
}

// Returns the losses of guessing evenly, of counts of characters, and of counts of pairs, on the held-out characters that
// are evaluated.
function countedLosses({ V, learned, heldOut, spans }) {
  const counts = new Float64Array(V);
  const pairs = new Map();
  for (let i = 0; i < learned.length; i++) {
    const pair = learned[i] * V + learned[i + 1];
    counts[learned[i]] += 1;
    if (i + 1 < learned.length) pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  const share = (id) => (counts[id] + 1) / (learned.length + V);
  const shareAfter = (before, id) => ((pairs.get(before * V + id) ?? 0) + share(id)) / (counts[before] + 1);
  let [single, double, n] = [0, 0, 0];
  for (const start of spans) {
    for (let i = start + 1; i <= Math.min(start + SPAN, heldOut.length - 1); i++) {
      single -= Math.log(share(heldOut[i]));
      double -= Math.log(shareAfter(heldOut[i - 1], heldOut[i]));
      n++;
    }
  }
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

const charactersOf = ({ steps, batch, T }) => steps * batch * T;

// Returns the progress, and decides when the next evaluation is due.
function evaluated() {
  const began_ms = performance.now();
  const now = progress();
  const took_s = (performance.now() - began_ms) / 1000;
  run.evaluated = Math.max(now.characters, FIRST / 2);
  run.evaluateAt_s = run.seconds + (run.seconds < EARLY_S ? EVERY_S : Math.max(EVERY_S, took_s / SHARE));
  return now;
}

// Evaluates the models, and returns where they are. losses: of each, in training since the last evaluation (NaN: without
// a step), on the held-out text, and the best one there.
function progress() {
  const { steps, seconds, until } = run;
  const characters = charactersOf(run);
  const losses = models.map((model) => {
    const { gpt, step, best, trainLosses } = model;
    const heldOut = heldOutLoss(gpt);
    if (heldOut < best.loss) model.best = { loss: heldOut, step, characters, weights: gpt.copyWeights() };
    const train = trainLosses.reduce((a, b) => a + b, 0) / trainLosses.length;
    model.trainLosses = [];
    return { train, heldOut, best: model.best.loss, bestStep: model.best.step };
  });
  return { steps, characters, seconds, until, isOver: seconds >= until, losses };
}

// Returns the mean loss over the spans of the held-out text, each predicted in windows that divide it.
function heldOutLoss(gpt) {
  const length = 2 ** Math.floor(Math.log2(Math.min(gpt.T, SPAN)));
  const last = text.heldOut.length - 1;
  const starts = text.spans.flatMap((start) => {
    const inSpan = Array.from({ length: SPAN / length }, (_, i) => start + i * length);
    return inSpan.filter((each) => each < last);
  });
  let [sum, n] = [0, 0];
  for (let i = 0; i < starts.length; i += gpt.B) {
    const { inputs, targets } = gpt.windows(text.heldOut, starts.slice(i, i + gpt.B), length);
    const known = targets.reduce((count, target) => count + (target >= 0), 0);
    sum += known * gpt.forward(inputs, targets);
    n += known;
  }
  return sum / n;
}
