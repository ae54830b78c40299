// Models that train in this page: how they do, what they have learned, and what they write.

import { Model } from "./model.js";
import { oneAtATime } from "./panels/elements.js";
import { Learned } from "./panels/learned.js";
import { stateOf, titleOf } from "./panels/save.js";
import { Writes } from "./panels/writes.js";
import { Engine } from "./workers/engine.js";

const SAMPLE = { text: "", off: [], stop: null, temperature: 0.8, seed: 0 };
const ENOUGH = 32; // characters that show what a head looks at
const LENGTHS = [80, 36]; // of the sample of one model, and of each of two, which stand side by side

export class Run {
  // trainer: it has begun with models of these configs. text: the answer of `open` in trainer.js, with the name and the
  // bytes of the text. onChange() follows each change of what can be done.
  constructor({ trainer, text, configs, key, desk, loss, lookAlikes, onChange }) {
    Object.assign(this, { trainer, text, configs, key, desk, loss, lookAlikes, onChange });
    Object.assign(this, { history: [], isTraining: false, models: [] });
    this.titles = configs.map(titleOf);
    this.writer = new Engine("reader"); // so that a sample leaves alone what the visitor's models do
    this.look = oneAtATime(() => this.showAndWrite().catch((error) => desk.sayError(error)));
    this.writes = new Writes(this.titles);
    this.learned = new Learned(this.titles, text.lines);
    this.titles.forEach((_, i) => this.learned.tell(i, "A new model begins, which knows nothing."));
    loss.begin(this.titles, text);
  }

  get now() {
    return this.history.at(-1);
  }

  // Ends the workers, so that all that they are asked throws ENDED.
  end() {
    for (const each of [this.trainer, this.writer, ...this.models]) each.end();
  }

  // Shows the models as they begin, with a sample of each.
  async begin() {
    const states = (await this.weights()).map((each, i) => this.stateOf(i, each));
    this.models = states.map((state, i) => new Model(state, i));
    const known = states[0].header;
    const canRead = [...this.desk.text].every((each) => known.characters.includes(each) || each in known.alike);
    await this.desk.show(this.models, 0, canRead ? null : this.text.opening);
    await this.look();
  }

  // Trains for some seconds or, with null, for the time that was left.
  async train(seconds) {
    this.isTraining = true;
    this.onChange();
    const end = await this.trainer.ask("train", { seconds }, (soFar) => this.note(soFar));
    this.isTraining = false;
    this.note(end);
    await this.look();
  }

  // Remembers where the models are, shows it, and looks at them.
  note(now) {
    this.learned.note(now, this.history);
    this.history.push(now);
    this.loss.note(now);
    this.onChange();
    this.look();
  }

  // Returns the weights of each model, now or at its best evaluation; see `look` in trainer.js.
  weights(isBest = false) {
    return this.trainer.ask("look", { isBest });
  }

  stateOf(i, { weights, characters }) {
    const { lookAlikes, text } = this;
    const before = this.history.filter((each) => each.characters <= characters);
    const points = before.map((each) => [each.characters, each.losses[i].heldOut]);
    const name = `${titleOf(this.configs[i])}, trained here`;
    return stateOf({ name, text, config: this.configs[i], weights, points, lookAlikes });
  }

  // Shows what the models make of the text in the box, and a sample of each.
  async showAndWrite() {
    const characters = this.now?.characters ?? 0;
    const states = (await this.weights()).map((each, i) => this.stateOf(i, each));
    await Promise.all([this.refresh(states), this.write(states, characters)]); // each fails if another run begins
  }

  async write(states, characters) {
    const texts = [];
    for (const { header, weights } of states) {
      await this.writer.ask("load", { header, weights });
      texts.push(await this.writer.ask("write", { ...SAMPLE, length: LENGTHS[states.length - 1] }));
    }
    this.writes.show(characters, texts);
  }

  async refresh(states) {
    this.models.forEach((model, i) => model.load(states[i]));
    if (!this.models.includes(this.desk.model)) return;
    await this.desk.refresh();
    this.models.forEach(({ reading, heads }, i) => {
      if (reading?.shown.length >= ENOUGH && this.now?.characters) this.learned.noteRoles(i, reading.roles, heads);
    });
  }
}
