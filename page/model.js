// A model on the desk: its worker, what is switched off in it, and what it last answered about the text.

import { upTo } from "./panels/elements.js";
import { Engine } from "./workers/engine.js";

export class Model {
  // state: what a page knows of a model, see `describe` in models.py. index: 0, or 1 for the second of two.
  constructor(state, index) {
    Object.assign(this, { index, off: new Set(), reading: null });
    this.engine = new Engine("reader");
    this.load(state);
    const { layers, ngrams, longest_copy } = this.config;
    this.heads = layers.flatMap(({ n_head: H }, l) =>
      upTo(H - 1).map((h) => ({ name: `L${l}H${h}`, layer: l, number: h, words: `layer ${l}, head ${h}` })),
    );
    const memories = [...(ngrams.length ? ["n-grams"] : []), ...(longest_copy ? ["copies"] : [])];
    this.memories = memories.map((name) => ({ name, words: name }));
  }

  get config() {
    return this.state.header.config;
  }

  // Loads weights, which answer from now on. What the old ones answered stays until the new ones have answered.
  load(state) {
    this.state = state;
    this.loaded = this.engine.ask("load", { header: state.header, weights: state.weights });
    this.loaded.catch(() => {}); // `ask` throws its error
  }

  // Asks the worker, once its weights are loaded; see Engine.
  async ask(path, question, pass) {
    await this.loaded;
    return this.engine.ask(path, question, pass);
  }

  end() {
    this.engine.end();
  }

  async read(text) {
    const off = [...this.off];
    const answer = await this.ask("read", { text, off });
    this.reading = { ...answer, text, off, without: {} };
  }

  // Returns the loss on the text without a head, too; null for a text of one character.
  async lossWithout(name) {
    const { text, off, without } = this.reading;
    without[name] ??= await this.ask("loss", { text, off: [...off, name] });
    return without[name];
  }

  // The weight that head h (of all) gives at position q to position k.
  weight(h, q, k) {
    const { weights, shown } = this.reading;
    const T = shown.length;
    return k > q ? 0 : weights[(h * T * (T + 1)) / 2 + (q * (q + 1)) / 2 + k];
  }
}
