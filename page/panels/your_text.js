// The visitor's text: what surprises the model in it, and how the model continues it.

import { RETURN, codePointOf } from "../compute/vocabulary.js";
import { ENDED } from "../workers/engine.js";
import { Box } from "./box.js";
import { byId, enable, makeButtons, percent, say } from "./elements.js";
import { Sheet } from "./sheet.js";

const WRITING_MS = 150; // between updates while a text is written
const FIRST_WORDS = { length: 60, pause_ms: 50 }; // what the model writes when the page opens, and how slowly
const WHITE_SPACE = { " ": "a space", "\t": "a tab", "\n": "a line break" };

export class YourText {
  // desk: asks and shows. opening: the text at first. page: names the page, so that only its own text comes back.
  constructor(desk, opening, page) {
    Object.assign(this, { desk, writing: null, before: "", showsRate: false });
    this.box = new Box(byId("text"), opening, page, () => this.edited());
    this.sheet = new Sheet(byId("writing"), (by, character) => desk.valueOf(by, character));
    for (const button of this.sheet.buttons) {
      button.addEventListener("click", () => desk.look());
    }
    this.listen(this.box.field);
    const works = {
      write: () => (this.writing ? this.stop() : this.write()),
      again: () => this.again(),
      undo: () => this.box.step(-1),
    };
    makeButtons(works);
    this.showBusy();
    enable("again", false);
  }

  get value() {
    return this.box.value;
  }

  listen(field) {
    const { desk } = this;
    const chooseAtCaret = () =>
      desk.choose(Math.max(0, [...this.value.slice(0, field.selectionStart)].length - 1), true);
    field.onpointermove = (event) => {
      const character = this.sheet.at(event);
      if (character >= 0) desk.point(character);
    };
    field.onpointerleave = () => desk.point(-1);
    field.onclick = chooseAtCaret;
    field.onkeyup = (event) => {
      if (event.key.startsWith("Arrow")) chooseAtCaret();
    };
    byId("settings").onsubmit = (event) => {
      event.preventDefault();
      this.write();
    };
    document.addEventListener("keydown", (event) => {
      if (event.target.closest("#bar, dialog")) return;
      const [key, isCommand] = [event.key.toLowerCase(), (event.ctrlKey || event.metaKey) && !event.altKey];
      if (key === "enter" && isCommand) this.write();
      if (key === "escape") this.stop();
      if (!isCommand || !"zy".includes(key) || event.target.matches("input")) return;
      this.box.step(key === "y" || event.shiftKey ? 1 : -1);
      event.preventDefault();
    });
  }

  // Handles a change of the text by the user.
  edited() {
    this.isEdited = true;
    this.stop();
    this.act();
    this.sheet.reveal(this.box.field.selectionEnd);
  }

  // Handles an action of the user, and removes the message of the previous one.
  act() {
    say("");
    enable("again", false);
    this.desk.update();
  }

  // Puts a text into the box that the models can read.
  replace(text) {
    this.box.set(text);
    this.edited();
  }

  append(text) {
    if (!this.writing) this.replace(this.value + text);
  }

  // Draws the text with the shades of the model that is shown.
  draw(model) {
    const characters = [...this.value];
    enable("undo", this.box.canStep(-1));
    if (!model.reading) return this.sheet.show(characters, characters.length, []);
    const { unknown, start } = model.reading;
    const known = this.nKnown(model);
    const first = Math.max(Math.min(start, ...unknown), characters.length - model.state.context);
    const marked = unknown.filter((place) => first <= place && place < known);
    return this.sheet.show(characters, first, marked);
  }

  // Returns how many characters of the box the model has read: those after them were typed since then.
  nKnown({ reading: { text } }) {
    const [known, now] = [[...text], [...this.value]];
    const differs = known.findIndex((c, i) => c !== now[i]);
    return differs < 0 ? known.length : differs;
  }

  // Says how much the chosen character and the text surprise the models.
  describe(models, shown, chosen) {
    const model = models[shown];
    const { reading } = model;
    const i = chosen - reading.start;
    const bits = reading.bits[i];
    const isTyped = reading.start < reading.n && bits !== null && bits !== undefined;
    const ofCharacter = isTyped ? `“${reading.shown[i]}” got ${percent(2 ** -bits)}. ` : "";
    byId("cost").textContent = ofCharacter + costsInWords(models, model);
    byId("cost").title = isTyped ? `a surprise of ${bits.toFixed(2)} bits: log2 of 1 / its probability` : "";
    const remark = remarksOn([...reading.text], reading, model.state.header.alike);
    if (remark || !this.showsRate) say(remark);
    if (remark) this.showsRate = false;
  }

  // Returns the settings by name.
  get settings() {
    const inputs = [...byId("settings").querySelectorAll("input")];
    return Object.fromEntries(inputs.map(({ name, value }) => [name, Number(value)]));
  }

  // Continues a text. The end stays in sight, unless the user scrolls away from it.
  async write(before = this.value) {
    if (this.writing) return;
    if (!byId("settings").checkValidity()) {
      byId("details").open = true;
      byId("settings").reportValidity();
      return;
    }
    this.before = before;
    await this.writeWith(this.settings, before);
    enable("again", !this.isEdited);
  }

  // Writes the last words of the opening, once, slowly enough to be read along.
  async writeFirstWords() {
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const { length, pause_ms } = FIRST_WORDS;
    const text = this.value;
    await this.writeWith({ ...this.settings, length }, text, { pause_ms: isCalm ? 0 : pause_ms, isFirst: true });
  }

  async writeWith(settings, before, { pause_ms = 0, isFirst = false } = {}) {
    const model = this.desk.model;
    Object.assign(this, { writing: model, isStopped: false, isEdited: false });
    this.showBusy();
    if (!isFirst) this.act();
    const began_ms = performance.now();
    let updated_ms = 0;
    const change = {};
    const show = (written) => {
      if (this.isEdited) return; // by the user, whose text stays
      const isFollowed = this.sheet.isAtEnd() || updated_ms === 0;
      this.box.set(before + written, change);
      this.desk.update();
      if (isFollowed) this.sheet.reveal(this.value.length);
      updated_ms = performance.now();
    };
    const pass = (soFar) => {
      if (!pause_ms && performance.now() - updated_ms > WRITING_MS) show(soFar); // each change lays out the text again
    };
    try {
      const question = { ...settings, text: before, off: [...model.off], stop: model.state.stop };
      const written = [...(await model.ask("write", question, pass))];
      for (let n = 1; pause_ms && n < written.length && !this.isStopped; n++) {
        show(written.slice(0, n).join(""));
        await new Promise((go) => setTimeout(go, pause_ms));
      }
      if (!(isFirst && this.isStopped)) show(written.join(""));
      if (!isFirst && !this.isEdited) this.sayRate(written.length, performance.now() - began_ms);
    } catch (error) {
      if (error !== ENDED) say(error.message);
    }
    this.writing = null;
    this.showBusy();
  }

  sayRate(n, ms) {
    this.showsRate = true; // until the user acts
    const rate = ((1000 * n) / ms).toFixed(0);
    say(`Wrote ${n} character${n === 1 ? "" : "s"}, ${rate} per second.`, byId("message"), false);
  }

  showBusy() {
    byId("write").textContent = this.writing ? "Stop" : "Continue";
  }

  stop() {
    this.isStopped = true;
    this.showsRate = false;
    return this.writing?.ask("stop");
  }

  again() {
    const { seed } = byId("settings").elements;
    if (byId("settings").checkValidity()) seed.value = Number(seed.value) + 1;
    return this.write(this.before);
  }
}

// Says what the text costs the models that predict some of it, and what guessing evenly costs the one that is shown.
function costsInWords(models, { state, reading }) {
  const guessing = Math.log2([...state.header.characters].length).toFixed(1);
  if (reading.shown.length < 2) return "The first character is not predicted; type a second one.";
  const costs = models
    .filter((each) => each.reading?.text === reading.text && each.reading.shown.length > 1)
    .map(inBits);
  const what = reading.start ? `The last ${reading.shown.length} characters cost` : "Your text costs";
  return `${what} ${costs.join(" and ")} bits per character, guessing ${guessing}.`;
}

function inBits({ reading: { nats, shown } }) {
  return (nats / Math.LN2 / (shown.length - 1)).toFixed(2);
}

// Says what the model does not read as it stands in a text. alike: see `vocabularyOf`.
function remarksOn(characters, { start, unknown }, alike) {
  const remarks = characters.length ? [] : ["Without a text, the model starts a line."];
  if (unknown.length) {
    const rest =
      start < characters.length ? "It reads only what follows it." : "Nothing follows it, so the model starts a line.";
    remarks.push(`The model has never seen ${nameOf(characters[start - 1])}. ${rest}`);
  }
  const replaced = [...new Set(characters.slice(start))].filter((character) => character in alike);
  if (replaced.length) remarks.push(`The model reads ${replaced.map((each) => alike[each].spoken).join(", ")}.`);
  return remarks.join(" ");
}

// Returns the name of white space, another character in quotation marks, or the number of one that cannot be seen.
function nameOf(character) {
  if (character in WHITE_SPACE) return WHITE_SPACE[character];
  if (character === RETURN) return "a carriage return";
  const isVisible = !/[\p{C}\p{M}\p{Z}]/u.test(character);
  return isVisible ? `'${character}'` : codePointOf(character);
}
