// The desk: the models that lie on it, the text that they read, and what is chosen of both.

import { byId, make, oneAtATime, say, showBars } from "./panels/elements.js";
import { Head } from "./panels/head.js";
import { Inside } from "./panels/inside.js";
import { showSteps } from "./panels/steps.js";
import { YourText } from "./panels/your_text.js";
import { ENDED } from "./workers/engine.js";

const INSIDE_MS = 300; // of a pause in typing before maps are computed

export class Desk {
  // opening: the text at first. onShow(): other models are shown.
  constructor(opening, onShow) {
    Object.assign(this, { models: [], place: 0, head: null, chosen: -1, onShow });
    this.inside = new Inside((h) => this.chooseHead(h));
    this.headPanel = new Head(
      (q) => this.choose(this.model.reading.start + q),
      (part) => this.flip(part),
    );
    this.look = oneAtATime(() => this.computeMaps().catch((error) => this.sayError(error)));
    this.lookAtHead = oneAtATime(() => this.computeHead().catch((error) => this.sayError(error)));
    this.yourText = new YourText(this, opening);
    for (const id of ["steps", "layers"]) byId(id).ontoggle = () => this.lookAtHead();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showMaps());
  }

  get model() {
    return this.models[this.place];
  }

  get text() {
    return this.yourText.value;
  }

  // The position of the chosen character in the context window of the model; the last one if that has not been read.
  get query() {
    const { start, shown } = this.model.reading;
    const chosen = this.chosen - start;
    return 0 <= chosen && chosen < shown.length ? chosen : shown.length - 1;
  }

  sayError(error) {
    if (error !== ENDED) say(error.message);
  }

  // Shows one model or two, of which one is looked into. text: for the box; null: the one that is there.
  async show(models, place, text = null) {
    await this.yourText.stop();
    Object.assign(this, { models, place });
    for (const model of models) model.readAgain ??= oneAtATime(() => this.read(model));
    const nHeads = this.model.heads.length;
    if (this.head >= nHeads) this.head = 0;
    byId("focus").hidden = !nHeads;
    document.body.dataset.series = this.model.index;
    byId("next-b").hidden = models.length < 2;
    this.inside.show(this.model, this.head);
    this.headPanel.showSwitches(this.model);
    this.onShow();
    if (text !== null) this.yourText.replace(text);
    this.yourText.draw(this.model);
    this.refresh();
  }

  // Asks the models about the text in the box; the maps follow when typing pauses.
  update() {
    this.yourText.draw(this.model);
    this.models.forEach((model) => model.readAgain());
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.look(), INSIDE_MS);
  }

  // Asks models that are shown first or have new weights. What the old ones said stays until then.
  refresh() {
    this.models.forEach((model) => model.readAgain());
    return this.look();
  }

  async read(model) {
    try {
      await model.read(this.text);
      this.showReading(model);
    } catch (error) {
      this.sayError(error);
    }
  }

  showReading(model) {
    const i = this.models.indexOf(model);
    if (i < 0) return;
    showBars(byId(i ? "next-b" : "next-a"), model.reading.next, (n) => this.take(model, n));
    if (!this.model.reading) return;
    this.yourText.draw(this.model);
    this.showChosen();
  }

  // Appends a likely character to the text that it was predicted for.
  take(model, n) {
    if (this.text !== model.reading.text || this.yourText.writing) return;
    this.yourText.replace(this.text + model.reading.next[n][2]);
  }

  async computeMaps() {
    const { model } = this;
    await model.look(this.text);
    if (model === this.model) this.showMaps();
  }

  showMaps() {
    const { model } = this;
    if (!model?.inside) return;
    const shares = model.inside.roles.map(([role, figure]) => (role === "no fixed target" ? 0 : Number(figure)));
    this.head ??= shares.indexOf(Math.max(...shares)); // at first, the clearest
    this.inside.showMaps(model);
    if (model.reading) this.showChosen();
  }

  // Whether there are maps, and those of the text that was read.
  get isLooked() {
    const { heads, inside, reading } = this.model;
    return heads.length > 0 && this.head !== null && inside?.text === reading?.text;
  }

  // Shows what belongs to the chosen character and head.
  showChosen() {
    const { model, query } = this;
    this.yourText.sheet.shade(model.reading.start + query);
    this.yourText.describe(this.models, this.place, model.reading.start + query);
    this.inside.show(model, this.head);
    if (!this.isLooked) return;
    this.headPanel.show(model, this.head, query);
    this.lookAtHead();
  }

  chooseHead(h) {
    this.head = h;
    if (this.model.reading) this.showChosen();
  }

  choose(character) {
    this.chosen = character;
    if (this.model?.reading) this.showChosen();
  }

  // The surprise of a character of the box, or the weight that the chosen one gives to it; null if there is none.
  valueOf(by, character) {
    const { model } = this;
    if (!this.yourText.isStill(model?.reading)) return null;
    const i = character - model.reading.start;
    if (by === "surprise") return model.reading.bits[i];
    return this.isLooked && i >= 0 && i <= this.query ? model.weight(this.head, this.query, i) : null;
  }

  flip(part) {
    const { off } = this.model;
    if (!off.delete(part)) off.add(part);
    this.headPanel.showSwitches(this.model);
    this.update();
  }

  // Shows how the chosen head computed, what each layer would guess, and what the text costs without the head.
  async computeHead() {
    const { model, head, text } = this;
    if (!model?.reading || !this.isLooked || text !== model.reading.text) return;
    const t = this.query;
    const isAsked = () => model === this.model && head === this.head && text === model.reading.text && t === this.query;
    const question = { text, off: [...model.off], name: model.heads[head].name, t };
    if (byId("steps").open) {
      const answer = await model.ask("head", question);
      if (isAsked()) showSteps(model.config, answer);
    }
    if (byId("layers").open) {
      const layers = await model.ask("layers", question);
      if (isAsked()) showLayers(layers);
    }
    await this.headPanel.showCosts(model, head, text);
  }
}

// Shows what each layer would guess: [[label, share], ...] of each.
function showLayers(layers) {
  const cells = layers.map((guesses, l) => {
    const bars = make("div", [], { className: "bars" });
    showBars(bars, guesses);
    return make("div", [make("h3", `layer ${l}`), bars]);
  });
  byId("guesses").replaceChildren(...cells);
}
