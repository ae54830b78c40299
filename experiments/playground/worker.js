"use strict";
// Answers the page's questions about one model, in a thread of its own: the page never waits for arithmetic.

const SHOWN = 10,
  IN_LENS = 3; // characters in a list of predictions, and in one of a layer's
const STEPS = 8; // characters whose numbers the steps of a head show
const TURN_MS = 30; // of work before other questions get a turn
const isByte = /^[\udc80-\udcff]$/; // a part of a character, as Python spells it
let gpt, header, characters, codes; // codes: the id of each character
let newest = 0; // the number of the text that is being written; another one or `stop` ends it
let turn = Promise.resolve(); // texts are read one after another, because the cache of the model holds one

const ANSWERS = {
  async load(checkpoint) {
    const weights = await unpack(checkpoint.header.tensors, checkpoint.weights);
    const replace = () => {
      header = checkpoint.header;
      characters = [...header.characters];
      codes = new Map(characters.map((character, id) => [character, id]));
      gpt = new GPT(header.config, weights);
    };
    turn = turn.then(replace, replace); // not while a text is read
    await turn;
  },

  // The likeliest next characters, and the surprise, in bits, of each character in the context window.
  read({ text, off }) {
    const ids = encode(text || header.start),
      start = windowStart(ids.length, header.config.block_size);
    return reading(ids, off, (ids) => {
      const bits = ids.map((id, t) => (t ? -Math.log2(softmax(gpt.logits[t - 1])[id]) : null));
      const next = likeliest(softmax(gpt.logits[ids.length - 1]), SHOWN),
        nats = bits.reduce((sum, each) => sum + each, 0) * Math.LN2;
      return {
        next,
        text: ids.map((id) => characters[id]),
        shown: ids.map((id) => header.labels[id]),
        start,
        bits,
        nats,
      };
    });
  },

  // The attention weights of all heads, each head's lower triangle row by row, and what each layer would predict.
  inside({ text, off }) {
    return reading(encode(text || header.start), off, (ids) => {
      const heads = header.config.layers.flatMap(({ n_head }, l) => Array.from({ length: n_head }, (_, h) => [l, h]));
      const rows = heads.flatMap(([l, h]) => ids.map((_, t) => gpt.head(l, h, t).weights)); // (t + 1,) each
      const weights = new Float32Array(rows.reduce((sum, row) => sum + row.length, 0));
      rows.reduce((at, row) => (weights.set(row, at), at + row.length), 0);
      const lens = gpt.residuals
        .slice(1)
        .map((outputs) => ids.map((_, t) => likeliest(softmax(gpt.predict(outputs[t])), IN_LENS)));
      const roles = header.roles ?? rolesOn(ids, characters, heads.length, weights);
      return {
        heads: heads.map(([l, h]) => `L${l}H${h}`),
        measured: header.measured ?? "on this text",
        roles,
        weights,
        lens,
      };
    });
  },

  // What a head computes at the last characters up to position t, the scores that its mask hides included, and which
  // logits of the next character change most by what it adds to the residual stream there.
  head({ text, off, name, t }) {
    return reading(encode(text || header.start), off, (ids) => {
      const [l, h] = name.match(/\d+/g).map(Number),
        { score, slopes } = gpt.layers[l];
      const last = Math.min(t, ids.length - 1),
        first = Math.max(0, last - STEPS + 1),
        places = [...ids.keys()].slice(first, last + 1);
      const found = places.map((t) => gpt.head(l, h, t)),
        { keys, values } = found[0],
        row = found.at(-1);
      const scores = found.map(({ query }, i) =>
        places.map((s) => score(query)(keys[s]) - slopes[h] * (places[i] - s)),
      );
      const added = found.map(({ output }) => gpt.project(l, h, output)),
        x = gpt.residuals.at(-1)[last];
      const without = gpt.predict(x.map((each, i) => each - added.at(-1)[i])),
        changes = gpt.predict(x).map((each, i) => each - without[i]);
      const order = [...changes.keys()].sort((a, b) => changes[b] - changes[a]),
        label = (id) => [header.labels[id], changes[id]];
      const [k, v] = [keys, values].map((all) => places.map((s) => all[s]));
      const weights = found.map((each) => places.map((s) => each.weights[s] ?? 0));
      return {
        first,
        q: found.map(({ query }) => query),
        k,
        v,
        scores,
        weights,
        outputs: found.map(({ output }) => output),
        added,
        row: { scores: row.scores, weights: row.weights },
        isOff: gpt.off.has(name),
        changes: [order.slice(0, IN_LENS).map(label), order.slice(-IN_LENS).reverse().map(label)],
      };
    });
  },

  // Passes on the pieces of a continuation, which ends before the stop text.
  async write({ text, off, length, seed, stop, temperature, top_k: topK, top_p: topP, min_p: minP }, pass) {
    const ids = encode(text || header.start),
      draw = makeDraw(seed),
      spell = speller(),
      own = ++newest;
    let held = "",
      ready = ""; // what may begin the stop text, and what the page has not received
    encode(stop);
    for (let i = 0; i < length && own === newest; i++) {
      if (await letOthersAsk()) {
        pass(ready);
        ready = "";
      }
      const sampling = { temperature, topK, topP, minP };
      await reading(ids, off, (window) => ids.push(draw(probabilities(gpt.logits[window.length - 1], sampling))));
      held += spell(ids.at(-1));
      if (stop && held.includes(stop)) return pass(ready + held.slice(0, held.indexOf(stop)));
      let n = Math.max(0, stop.length - 1);
      while (!held.endsWith(stop.slice(0, n))) n--;
      ready += held.slice(0, held.length - n);
      held = held.slice(held.length - n);
    }
    pass(ready + held);
  },

  async stop() {
    newest++;
  },
};

onmessage = async ({ data: { number, path, ...question } }) => {
  try {
    postMessage({ number, answer: await ANSWERS[path](question, (piece) => piece && postMessage({ number, piece })) });
  } catch ({ message, position }) {
    postMessage({ number, error: message, position });
  }
};

// Reads a text with some parts off, and returns what `use` makes of the ids of its context window.
function reading(ids, off, use) {
  const window = ids.slice(windowStart(ids.length, header.config.block_size));
  const work = async () => {
    if (String([...gpt.off]) !== String(off)) gpt.switchOff(off);
    const isRead = window.every((id, t) => id === gpt.ids[t]); // the cache may hold what follows, too
    for (const _ of isRead ? [] : gpt.read(ids)) {
      if (await letOthersAsk()) postMessage({ share: gpt.ids.length / window.length });
    }
    return use(window);
  };
  turn = turn.then(work, work);
  return turn;
}

let began_ms = 0;

// Lets the worker receive other questions, if it has worked for some time; returns whether it had.
async function letOthersAsk() {
  if (performance.now() - began_ms < TURN_MS) return false;
  const { port1, port2 } = new MessageChannel(); // a timer would wait for 4 ms
  await new Promise((go) => (port1.onmessage = go) && port2.postMessage(null));
  began_ms = performance.now();
  return true;
}

// Returns the ids of a text. Throws an error with the position of the first character that the model does not know.
function encode(text) {
  const bytes = new TextEncoder();
  return [...text].flatMap((character, position) => {
    if (header.unit === "byte")
      return isByte.test(character) ? [character.charCodeAt(0) - 0xdc00] : [...bytes.encode(character)];
    if (codes.has(character)) return [codes.get(character)];
    const point = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const where = `(character ${(position + 1).toLocaleString("en")} of the text), which has ${header.known}`;
    throw Object.assign(new Error(`'${character}' (U+${point}) is not in the vocabulary ${where}`), { position });
  });
}

// Returns a function that turns one id after another into text; of bytes, it waits for the last one of a character.
function speller() {
  const decoder = new TextDecoder();
  return header.unit === "byte" ? (id) => decoder.decode(Uint8Array.of(id), { stream: true }) : (id) => characters[id];
}

// Returns label, text and probability of the n likeliest characters; a byte that is no character has no text.
function likeliest(p, n) {
  const left = p.slice();
  return Array.from({ length: Math.min(n, p.length) }, () => {
    const id = left.indexOf(left.reduce((a, b) => Math.max(a, b)));
    left[id] = -1;
    return [header.labels[id], header.unit === "byte" && characters[id] > "~" ? "" : characters[id], p[id]];
  });
}
