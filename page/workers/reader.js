// Answers the page's questions about one model, in a thread of its own: the page never waits for arithmetic.

import { GPT, scaledDot, softmax, windowStart } from "../compute/gpt.js";
import { rolesOn } from "../compute/roles.js";
import { makeDraw, probabilities } from "../compute/sampling.js";
import { unpack } from "../compute/weights.js";
import { answerWith, letOthersAsk } from "./answer.js";

const SHOWN = 6; // characters in a list of predictions
const IN_LAYER = 3; // characters in a list of a layer's predictions
const STEPS = 6; // characters whose numbers the steps of a head show
const HEAVIEST = 3; // of them, those with the largest weights
let gpt;
let header;
let characters;
let codes; // the id of each character, or of the one that it looks like
let newest = 0; // the number of the text that is being written; another one or `stop` ends it
let turn = Promise.resolve(); // texts are read one after another, because the cache of the model holds one

const ANSWERS = {
  async load({ header: own, weights: given }) {
    const weights = typeof given === "string" ? await unpack(own.tensors, given) : given;
    const replace = () => {
      header = own;
      characters = [...header.characters];
      codes = new Map(characters.map((character, id) => [character, id]));
      for (const [character, plain] of Object.entries(header.alike)) codes.set(character, codes.get(plain));
      gpt = new GPT(header.config, weights);
    };
    turn = turn.then(replace, replace); // not while a text is read
    await turn;
  },

  // The likeliest next characters; the surprise of each character in the context window, which starts after the last of
  // the unknown ones, and their mean, the loss; the attention weights of all heads, each head's lower triangle row by
  // row; and their roles.
  read({ text, off }) {
    const { ids, start, unknown } = encode(text);
    return reading(ids, off, (window) => {
      const surprises = surprisesOf(window);
      const heads = gpt.layers.flatMap(({ weights }) => weights);
      const weights = triangles(heads, window.length);
      return {
        next: likeliest(softmax(gpt.logits[window.length - 1]), SHOWN),
        shown: window.map((id) => header.labels[id]),
        start: start + ids.length - window.length,
        unknown,
        surprises,
        loss: lossOf(surprises),
        weights,
        roles: header.measured?.roles ?? rolesOn(window, characters, heads.length, weights),
      };
    });
  },

  // The loss on a text; null for a text of one character.
  loss({ text, off }) {
    return reading(encode(text).ids, off, (window) => lossOf(surprisesOf(window)));
  },

  // What each layer would predict after position t.
  layers({ text, off, t }) {
    const predict = (x) => likeliest(softmax(gpt.predict(x)), IN_LAYER);
    return reading(encode(text).ids, off, () => gpt.residuals.slice(1).map((outputs) => predict(outputs[t])));
  },

  // What a head computes at position t and some before it, the scores that its mask hides included, and what it adds to
  // the residual stream.
  head({ text, off, name, t }) {
    return reading(encode(text).ids, off, (window) => {
      const [l, h] = name.match(/\d+/g).map(Number);
      const places = placesToShow(gpt.head(l, h, t).weights);
      const found = places.map((place) => gpt.head(l, h, place));
      const k = places.map((place) => found[0].keys[place]);
      const v = places.map((place) => found[0].values[place]);
      return {
        places,
        names: places.map((place) => header.labels[window[place]]),
        q: found.map(({ query }) => query),
        k,
        v,
        scores: unmaskedScores(l, h, found, k, places),
        weights: found.map((each) => places.map((place) => each.weights[place] ?? 0)),
        outputs: found.map(({ output }) => output),
        added: found.map(({ output }) => gpt.project(l, h, output)),
      };
    });
  },

  // A continuation, which ends before the stop text, if there is one. Passes on each character.
  async write({ text, off, length, seed, stop, temperature }, pass) {
    const { ids } = encode(text);
    const draw = makeDraw(seed, ids.length); // two continuations are those that one would be
    const own = ++newest;
    let written = "";
    for (let i = 0; i < length && own === newest; i++) {
      const append = (window) => ids.push(draw(probabilities(gpt.logits[window.length - 1], temperature)));
      await reading(ids, off, append);
      const character = characters[ids.at(-1)];
      if (character === stop) break;
      written += character;
      pass(character);
    }
    return written;
  },

  async stop() {
    newest++;
  },
};

answerWith(ANSWERS);

// Reads a text with some parts off, and returns what `use` makes of the ids of its context window.
function reading(ids, off, use) {
  const window = ids.slice(windowStart(ids.length, header.config.block_size));
  const work = async () => {
    if (String([...gpt.off]) !== String(off)) gpt.switchOff(off);
    const isRead = window.every((id, t) => id === gpt.ids[t]); // the cache may hold what follows, too
    for (const _ of isRead ? [] : gpt.read(ids)) await letOthersAsk();
    return use(window);
  };
  turn = turn.then(work, work);
  return turn;
}

// Returns the ids of a text after the last character that the model does not know, or of the start of a line if nothing
// follows; where they start in the text; and the places of the unknown characters that the window could have reached.
function encode(text) {
  const all = [...text].map((character) => codes.get(character));
  const start = all.lastIndexOf(undefined) + 1;
  const unknown = [...all.keys()].filter((i) => all[i] === undefined && i >= all.length - header.config.block_size);
  return { ids: start < all.length ? all.slice(start) : [codes.get(header.start)], start, unknown };
}

// Returns label, probability and text of the n likeliest characters.
function likeliest(p, n) {
  const left = p.slice();
  return Array.from({ length: Math.min(n, p.length) }, () => {
    const id = left.indexOf(left.reduce((a, b) => Math.max(a, b)));
    left[id] = -1;
    return [header.labels[id], p[id], characters[id]];
  });
}

// Returns the surprise, in nats, of each character but the first, whose is null.
function surprisesOf(window) {
  return window.map((id, t) => (t ? -Math.log(softmax(gpt.logits[t - 1])[id]) : null));
}

const lossOf = (surprises) =>
  surprises.length > 1 ? surprises.reduce((a, b) => a + b, 0) / (surprises.length - 1) : null;

// Returns the attention weights (T, t + 1) of heads, one lower triangle after another.
function triangles(heads, T) {
  const size = (T * (T + 1)) / 2;
  const triangle = new Float32Array(heads.length * size);
  heads.forEach((weights, h) => {
    for (let t = 0; t < T; t++) triangle.set(weights[t], h * size + (t * (t + 1)) / 2);
  });
  return triangle;
}

// Returns some of the positions (t + 1,) of a head's weights: the last one, those with the largest weights, and the
// nearest others, in the order of the text.
function placesToShow(weights) {
  const nearest = [...weights.keys()].reverse();
  const heaviest = [...nearest].sort((a, b) => weights[b] - weights[a]);
  const places = new Set([nearest[0], ...heaviest.slice(0, HEAVIEST), ...nearest]);
  return [...places].slice(0, STEPS).sort((a, b) => a - b);
}

// Returns the score (n, n) of each query for each key (n, D) of head h in layer l, also for those that the mask hides,
// given the positions (n,) of both.
function unmaskedScores(l, h, found, keys, places) {
  const { slopes } = gpt.layers[l];
  const distance = (i, j) => places[i] - places[j];
  return found.map(({ query }, i) => keys.map((key, j) => scaledDot(query, key) - slopes[h] * distance(i, j)));
}
