// The text box: every change of its text can be undone, whoever made it.

const GROUP_MS = 1000; // a longer pause in typing begins another change

export class Box {
  // opening: the text at first. onChange() follows each change by the user.
  constructor(field, opening, onChange) {
    Object.assign(this, { field, onChange, texts: [], now: -1, change: null });
    this.set(opening);
    field.oninput = ({ inputType }) => this.type(inputType);
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
    const { value: text, selectionEnd: caret } = this.field;
    if (text === this.texts[this.now]?.text) return;
    const before = this.texts.slice(0, this.now + (change === this.change ? 0 : 1));
    Object.assign(this, { texts: [...before, { text, caret }], now: before.length, change });
  }

  // Remembers what the user typed; letters typed one after another, without a long pause, are one change.
  type(kind) {
    const typing = { kind, at_ms: performance.now() };
    const last = this.change;
    const isSame = last?.kind === kind && /^(insert(Composition)?Text|delete)/.test(kind);
    const goesOn = isSame && typing.at_ms - last.at_ms < GROUP_MS;
    this.remember(goesOn ? Object.assign(last, typing) : typing);
    this.onChange();
  }

  canStep(by) {
    return Boolean(this.texts[this.now + by]);
  }

  // Takes the newest change back (-1), or makes it again (1).
  step(by) {
    if (!this.canStep(by)) return;
    this.now += by;
    this.change = null;
    const { text, caret } = this.texts[this.now];
    this.field.value = text;
    this.field.setSelectionRange(caret, caret);
    this.onChange();
  }
}
