// The visitor's text: what surprises the model in it, and how the model continues it.

import { visible } from "../compute/vocabulary.js";
import { Box } from "./box.js";
import { byId, enable, makeButtons, percent, say } from "./elements.js";
import { Sheet } from "./sheet.js";

const WRITING_MS = 150; // between updates while a text is written

export class YourText {
  // desk: asks and shows. opening: the text at first.
  constructor(desk, opening) {
    Object.assign(this, { desk, writing: null, isEdited: true });
    this.box = new Box(byId("text"), opening, () => this.edited());
    this.sheet = new Sheet(byId("writing"), (by, character) => desk.valueOf(by, character));
    this.listen(this.box.field);
    makeButtons({
      write: () => (this.writing ? this.stop() : this.write()),
      again: () => this.again(),
      undo: () => this.box.step(-1),
    });
    this.showBusy();
  }

  get value() {
    return this.box.value;
  }

  listen(field) {
    const chooseAtCaret = () => {
      const before = this.value.slice(0, field.selectionStart);
      this.desk.choose(before === this.value ? -1 : [...before].length - 1); // -1: the last one, also of a longer text
    };
    field.onclick = chooseAtCaret;
    field.onkeyup = (event) => {
      if (/^(Arrow|Home|End|Page)/.test(event.key)) chooseAtCaret();
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

  edited() {
    this.isEdited = true;
    this.stop();
    this.showBusy();
    this.desk.update();
    if (this.box.field.selectionEnd === this.value.length) this.sheet.showEnd();
  }

  replace(text) {
    this.box.set(text);
    this.edited();
  }

  // Draws the text with the shades of the model that is shown.
  draw({ reading, config }) {
    const characters = [...this.value];
    enable("undo", this.box.canStep(-1));
    const { unknown, start } = this.isStill(reading) ? reading : { unknown: [], start: 0 };
    const first = Math.max(Math.min(start, ...unknown), characters.length - config.block_size);
    const marked = unknown.filter((place) => first <= place);
    this.sheet.show(characters, first, marked);
  }

  // Returns whether what was read is the beginning of the text, which may have been continued since then.
  isStill(reading) {
    return reading && this.value.startsWith(reading.text);
  }

  // Says how much the chosen character and the text surprise the model.
  describe(model, chosen) {
    const { reading } = model;
    const i = chosen - reading.start;
    const surprise = reading.surprises[i];
    const isPredicted = Number.isFinite(surprise); // not the first character
    const ofCharacter = isPredicted ? `“${reading.shown[i]}” got ${percent(Math.exp(-surprise))}. ` : "";
    byId("text-loss").textContent = ofCharacter + lossInWords(model);
    byId("text-loss").title = isPredicted ? `a surprise of ${surprise.toFixed(2)}: ln of 1 / its probability` : "";
    say(remarksOn([...reading.text], reading, model.state.header.alike));
  }

  // Continues a text. The end stays in sight, unless the user scrolls away from it.
  async write(before = this.value) {
    if (this.writing) return;
    byId("details").open ||= !byId("settings").checkValidity();
    if (!byId("settings").reportValidity()) return;
    const model = this.desk.model;
    const settings = Object.fromEntries(
      [...new FormData(byId("settings"))].map(([name, value]) => [name, Number(value)]),
    );
    Object.assign(this, { before, writing: model, isEdited: false });
    this.showBusy();
    const change = {};
    let [written, updated_ms] = ["", 0];
    const show = () => {
      if (this.isEdited) return; // by the user, whose text stays
      const isFollowed = this.sheet.isAtEnd() || updated_ms === 0;
      this.box.set(before + written, change);
      this.desk.update();
      if (isFollowed) this.sheet.showEnd();
      updated_ms = performance.now();
    };
    const pass = (character) => {
      written += character;
      if (performance.now() - updated_ms > WRITING_MS) show(); // each change lays out the text again
    };
    try {
      const question = { ...settings, text: before, off: [...model.off], stop: model.state.stop };
      await model.ask("write", question, pass);
      show();
    } catch (error) {
      this.desk.sayError(error);
    }
    this.writing = null;
    this.showBusy();
  }

  showBusy() {
    byId("write").textContent = this.writing ? "Stop" : "Continue";
    enable("again", !this.writing && !this.isEdited);
  }

  stop() {
    return this.writing?.ask("stop");
  }

  again() {
    const { seed } = byId("settings").elements;
    seed.value = Number(seed.value) + 1;
    return this.write(this.before);
  }
}

// Says the loss of a model on the text, and that of guessing evenly.
function lossInWords({ state, reading: { loss, start, shown } }) {
  if (loss === null) return "The first character is not predicted; type a second one.";
  const where = start ? `the last ${shown.length} characters` : "your text";
  const guessing = Math.log([...state.header.characters].length);
  return `Loss on ${where}: ${loss.toFixed(2)}; of guessing: ${guessing.toFixed(2)}.`;
}

// Says what the model does not read as it stands in a text. alike: see `vocabularyOf`.
function remarksOn(characters, { start, unknown }, alike) {
  const remarks = characters.length ? [] : ["Without a text, the model starts a line."];
  if (unknown.length) {
    const rest =
      start < characters.length ? "It reads only what follows it." : "Nothing follows it, so the model starts a line.";
    remarks.push(`The model has never seen “${visible(characters[start - 1])}”. ${rest}`);
  }
  const replaced = [...new Set(characters.slice(start))].filter((character) => character in alike);
  const spoken = replaced.map((each) => `${visible(alike[each])} for ${visible(each)}`);
  if (spoken.length) remarks.push(`The model reads ${spoken.join(", ")}.`);
  return remarks.join(" ");
}
