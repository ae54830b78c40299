// The text box: every change of its text can be undone, whoever made it.

const PAUSE_MS = 1000; // in typing, after which another change begins

export class Box {
  // opening: the text at first. onChange() follows each change by the user.
  constructor(field, opening, onChange) {
    Object.assign(this, { field, onChange, texts: [], now: -1, change: null });
    this.set(opening);
    field.oninput = () => this.type();
  }

  get value() {
    return this.field.value;
  }

  // Puts a text into the box. change: an object that names the change; those of one name are undone together.
  set(text, change = {}) {
    this.field.value = text;
    this.remember(change);
  }

  remember(change) {
    if (this.value === this.texts[this.now]) return;
    const before = this.texts.slice(0, this.now + (change === this.change ? 0 : 1));
    Object.assign(this, { texts: [...before, this.value], now: before.length, change });
  }

  type() {
    const typed_ms = performance.now();
    const goesOn = typed_ms - this.change?.typed_ms < PAUSE_MS;
    this.remember(goesOn ? Object.assign(this.change, { typed_ms }) : { typed_ms });
    this.onChange();
  }

  canStep(by) {
    return this.now + by in this.texts;
  }

  // Takes the newest change back (-1), or makes it again (1).
  step(by) {
    if (!this.canStep(by)) return;
    this.now += by;
    this.change = null;
    this.field.value = this.texts[this.now];
    this.onChange();
  }
}
