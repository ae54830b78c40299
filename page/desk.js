// The desk: the models that lie on it, the text that they read, and what is chosen of both.

import { byId, make, oneAtATime, say, showBars } from "./panels/elements.js";
import { Head } from "./panels/head.js";
import { Inside } from "./panels/inside.js";
import { showSteps } from "./panels/steps.js";
import { YourText } from "./panels/your_text.js";
import { ENDED } from "./workers/engine.js";

export class Desk {
  // opening: the text at first. onShow(): other models are shown.
  constructor(opening, onShow) {
    Object.assign(this, { models: [], place: 0, head: null, chosen: -1, onShow });
    this.inside = new Inside((h) => this.chooseHead(h));
    this.headPanel = new Head(
      (q) => this.choose(this.model.reading.start + q),
      (part) => this.flip(part),
    );
    this.lookAtHead = oneAtATime(() => this.computeHead().catch((error) => this.sayError(error)));
    this.yourText = new YourText(this, opening);
    for (const id of ["steps", "layers"]) byId(id).ontoggle = () => this.lookAtHead();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showReading());
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
    if (text === null) this.update();
    else this.yourText.replace(text);
  }

  // Asks the models about the text in the box.
  update() {
    this.yourText.draw(this.model);
    return this.refresh();
  }

  // Asks models that have new weights. What the old ones said stays until then.
  refresh() {
    return Promise.all(this.models.map((model) => model.readAgain()));
  }

  async read(model) {
    try {
      await model.read(this.text);
    } catch (error) {
      this.sayError(error);
      return;
    }
    const i = this.models.indexOf(model);
    if (i < 0) return;
    showBars(byId(i ? "next-b" : "next-a"), model.reading.next, (n) => this.take(model, n));
    this.showReading();
  }

  // Appends a likely character to the text that it was predicted for.
  take(model, n) {
    if (this.text !== model.reading.text || this.yourText.writing) return;
    this.yourText.replace(this.text + model.reading.next[n][2]);
  }

  showReading() {
    const { model } = this;
    if (!model?.reading) return;
    const shares = model.reading.roles.map(([role, figure]) => (role === "no fixed target" ? 0 : Number(figure)));
    if (shares.length) this.head ??= shares.indexOf(Math.max(...shares)); // at first, the clearest
    this.yourText.draw(model);
    this.inside.showMaps(model);
    this.showChosen();
  }

  // Shows what belongs to the chosen character and head, once the model has read.
  showChosen() {
    const { model, head } = this;
    if (!model?.reading) return;
    const { query } = this;
    const character = model.reading.start + query;
    this.yourText.sheet.shade(character);
    this.yourText.describe(model, character);
    this.inside.show(model, head);
    if (!model.heads.length) return;
    this.headPanel.show(model, head, query);
    this.lookAtHead();
  }

  chooseHead(h) {
    this.head = h;
    this.showChosen();
  }

  choose(character) {
    this.chosen = character;
    this.showChosen();
  }

  // The surprise of a character of the box, or the weight that the chosen one gives to it; null if there is none.
  valueOf(by, character) {
    const { model } = this;
    if (!this.yourText.isStill(model?.reading)) return null;
    const i = character - model.reading.start;
    if (by === "surprise") return model.reading.surprises[i];
    return model.heads.length && i >= 0 && i <= this.query ? model.weight(this.head, this.query, i) : null;
  }

  flip(part) {
    const { off } = this.model;
    if (!off.delete(part)) off.add(part);
    this.headPanel.showSwitches(this.model);
    this.update();
  }

  // Shows how the chosen head computed, what each layer would guess, and the loss on the text without the head.
  async computeHead() {
    const { model, head } = this;
    const { reading } = model ?? {};
    if (!reading) return;
    const t = this.query;
    const isAsked = () => model === this.model && reading === model.reading && head === this.head && t === this.query;
    const { name } = model.heads[head];
    const question = { text: reading.text, off: reading.off, name, t };
    if (byId("steps").open) {
      const answer = await model.ask("head", question);
      if (isAsked()) showSteps(model.config, answer);
    }
    if (byId("layers").open) {
      const layers = await model.ask("layers", question);
      if (isAsked()) showLayers(layers);
    }
    const loss = await model.lossWithout(name);
    if (isAsked()) this.headPanel.showLoss(model, name, loss);
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
