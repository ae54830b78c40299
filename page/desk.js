// The desk: the models that lie on it, the text that they read, and what is chosen of both.

import { byId, enable, oneAtATime, say, showBars, upTo } from "./panels/elements.js";
import { Head } from "./panels/head.js";
import { Inside } from "./panels/inside.js";
import { middleOfLine } from "./panels/sheet.js";
import { Steps } from "./panels/steps.js";
import { YourText } from "./panels/your_text.js";
import { RETURN } from "./compute/vocabulary.js";
import { ENDED } from "./workers/engine.js";

const INSIDE_MS = 300; // of a pause in typing before maps are computed
const PATIENCE_MS = 500; // before it is shown how much is read

export class Desk {
  // opening: the text at first. page: the name of the page. onShow(): other models are shown.
  constructor(opening, page, onShow) {
    Object.assign(this, { models: [], place: 0, head: null, pointed: -1, kept: -1, changed_ms: 0, onShow });
    this.readers = new Map();
    this.inside = new Inside((h) => this.chooseHead(h));
    this.headPanel = new Head(
      (q) => this.choose(this.model.reading.start + q, true),
      (part) => this.flip(part),
    );
    this.steps = new Steps();
    this.look = oneAtATime(() => this.computeMaps().catch((error) => this.sayError(error)));
    this.lookAtHead = oneAtATime(() => this.computeHead().catch((error) => this.sayError(error)));
    this.yourText = new YourText(this, opening, page);
    for (const id of ["steps", "layers"]) byId(id).ontoggle = () => this.lookAtHead();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showMaps());
  }

  get model() {
    return this.models[this.place];
  }

  get text() {
    return this.yourText.value;
  }

  // The position of the chosen character in the context window of the model.
  get query() {
    const { start, n, text } = this.model.reading;
    if (start === n) return 0; // the start of a line, not typed
    const isRead = (character) => character >= start && character < n;
    const chosen = [this.pointed, this.kept].find(isRead) ?? start + middleOfLine([...text].slice(start));
    return chosen - start;
  }

  sayError(error) {
    if (error !== ENDED) say(error.message);
  }

  // Shows one model or two, of which one is looked into. text: for the box; null: the one that is there.
  async show(models, place, text = null) {
    await this.yourText.stop();
    Object.assign(this, { models, place });
    for (const model of models) {
      const read = oneAtATime(() => this.read(model));
      if (!this.readers.has(model)) this.readers.set(model, read);
    }
    const nHeads = this.model.heads.length;
    if (this.head >= nHeads) this.head = null;
    byId("focus").hidden = !nHeads;
    document.body.dataset.series = this.model.index;
    this.yourText.box.hasReturns = models.some(({ state }) => state.header.characters.includes(RETURN));
    byId("next-b").hidden = models.length < 2;
    this.inside.show(this.model, this.head);
    this.headPanel.showSwitches(this.model);
    this.onShow();
    if (text !== null) this.yourText.replace(text);
    this.update();
    this.changed_ms = 0; // nobody types: the maps follow the reading
  }

  // Asks the models about the text in the box; the maps follow when typing pauses.
  update() {
    this.pointed = -1;
    this.changed_ms = performance.now();
    this.yourText.draw(this.model);
    this.models.forEach((model) => this.readers.get(model)());
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.look(), INSIDE_MS);
  }

  async read(model) {
    const began_ms = performance.now();
    const pass = (share) => {
      const isLong = performance.now() - began_ms > PATIENCE_MS && model === this.model;
      if (isLong) byId("cost").textContent = `Reading: ${Math.round(100 * share)} %`;
    };
    try {
      await model.read(this.text, pass);
    } catch (error) {
      return this.sayError(error);
    }
    this.showReading(model);
    if (performance.now() - this.changed_ms > INSIDE_MS) this.look();
    return null;
  }

  // Asks again, because the models have new weights. What the old ones said stays until then.
  async refresh() {
    const { text, models, model } = this;
    await Promise.all(models.map((each) => each.read(text)));
    await model.look(text);
    if (models !== this.models || model !== this.model) return;
    models.forEach((each) => this.showReading(each));
    this.showMaps();
  }

  showReading(model) {
    const i = this.models.indexOf(model);
    if (i < 0) return;
    const bars = model.reading.next.map(([label, , share]) => [label, share]);
    showBars(byId(i ? "next-b" : "next-a"), bars, (n) => this.take(model, n));
    if (!this.model.reading) return;
    this.yourText.draw(this.model);
    this.showChosen();
  }

  // Appends a likely character to the text that it was predicted for.
  take(model, n) {
    if (this.text === model.reading.text) this.yourText.append(model.reading.next[n][1]);
  }

  // Computes the maps of the text, once it is read.
  async computeMaps() {
    const { model, text } = this;
    if (model?.reading?.text !== text) return;
    await model.look(text);
    if (model === this.model) this.showMaps();
  }

  showMaps() {
    const { model } = this;
    if (!model?.inside) return;
    this.inside.showMaps(model);
    this.showChosen();
    if (this.isLooked) this.headPanel.drawMap();
  }

  // Whether there are maps, and those of the text that was read.
  get isLooked() {
    const { heads, inside, reading } = this.model;
    return heads.length > 0 && inside?.text === reading?.text;
  }

  // The head with the highest weight of the chosen character.
  sharpest() {
    const { model, query } = this;
    const peaks = model.heads.map((_, h) => Math.max(...upTo(query).map((k) => model.weight(h, query, k))));
    return peaks.indexOf(Math.max(...peaks));
  }

  // Shows what belongs to the chosen character and head.
  showChosen() {
    const { model, query } = this;
    const isFirst = this.isLooked && this.head === null;
    if (isFirst) this.head = this.sharpest();
    this.yourText.sheet.shade(model.reading.start + query);
    this.yourText.describe(this.models, this.place, model.reading.start + query);
    this.inside.show(model, this.head);
    if (isFirst) this.inside.reveal(this.head);
    if (!this.isLooked) return;
    this.headPanel.show(model, this.head, query);
    this.lookAtHead();
  }

  chooseHead(h) {
    this.head = h;
    if (!this.model.inside) return;
    this.showChosen();
    if (this.isLooked) this.headPanel.drawMap();
  }

  // Chooses a character of the text; `keeps`: until another one is chosen.
  choose(character, keeps = false) {
    if (keeps) this.kept = character;
    if (this.model?.reading) this.showChosen();
  }

  // Chooses the character under the pointer; -1: there is none any more.
  point(character) {
    this.pointed = character;
    this.choose(character);
  }

  // The surprise of a character of the box, or the weight that the chosen one gives to it; null if there is none.
  valueOf(by, character) {
    const { model } = this;
    if (!model?.reading || character < model.reading.start || character >= this.yourText.nKnown(model)) return null;
    const i = character - model.reading.start;
    if (by === "surprise") return model.reading.bits[i];
    return this.isLooked && i <= this.query ? model.weight(this.head, this.query, i) : null;
  }

  // Switches a head or a memory of the model off, or on again.
  flip(part) {
    const { off } = this.model;
    if (!off.delete(part)) off.add(part);
    this.headPanel.showSwitches(this.model);
    enable("again", false);
    this.update();
  }

  // Shows how the chosen head computed, what each layer would guess, and what the text costs without the head.
  async computeHead() {
    const { model, head, text, query: t } = this;
    const isAsked = () => model === this.model && head === this.head && text === model.reading.text && t === this.query;
    if (!this.isLooked || text !== model.reading.text) return;
    const question = { text, off: [...model.off], name: model.heads[head].name, t };
    if (byId("steps").open) {
      const answer = await model.ask("head", question);
      if (isAsked()) this.steps.show(model.config, answer);
    }
    if (byId("layers").open) {
      const layers = await model.ask("layers", question);
      if (isAsked()) showLayers(layers);
    }
    if (this.pointed < 0) await this.headPanel.showCosts(model, head, text);
  }
}

// Shows what each layer would guess: [[label, character, share], ...] of each.
function showLayers(layers) {
  while (byId("guesses").children.length < layers.length) {
    const cell = byId("guesses").appendChild(document.createElement("div"));
    cell.append(document.createElement("h3"), document.createElement("div"));
    cell.lastChild.className = "bars";
  }
  while (byId("guesses").children.length > layers.length) byId("guesses").lastChild.remove();
  layers.forEach((guesses, l) => {
    const cell = byId("guesses").children[l];
    cell.firstChild.textContent = `layer ${l}`;
    showBars(
      cell.lastChild,
      guesses.map(([label, , share]) => [label, share]),
    );
  });
}
