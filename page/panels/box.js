// The text box: every change of its text can be undone, whoever made it, and a reload keeps the text.

import { RETURN } from "../compute/vocabulary.js";

const GROUP_MS = 1000; // a longer pause in typing begins another change
const MOST_CHANGES = 300; // that can be undone

export class Box {
  // page: names the page, whose text alone comes back after a reload. onChange() follows each change by the user.
  // hasReturns: whether lines end with a carriage return and a line feed.
  constructor(field, opening, page, onChange) {
    Object.assign(this, { field, page, onChange, hasReturns: false, texts: [], now: -1, change: null });
    this.isNew = history.state?.page !== page; // not a page that was loaded again
    this.set(this.isNew ? opening : history.state.text);
    addEventListener("beforeunload", () => this.save());
    document.addEventListener("visibilitychange", () => this.save()); // a phone may end a page that it hides
    field.oninput = ({ inputType }) => this.type(inputType);
    field.onbeforeinput = (event) => {
      const { inputType, data } = event;
      const isUndo = inputType.startsWith("history"); // the browser's own, from a menu
      if (isUndo) this.step(inputType === "historyUndo" ? -1 : 1);
      const ends = inputType === "insertLineBreak" ? "\r\n" : data;
      const isOurs = this.hasReturns && ends?.includes("\r");
      if (isOurs) {
        field.setRangeText(ends.replaceAll("\r", RETURN), field.selectionStart, field.selectionEnd, "end");
        this.type(inputType);
      }
      if (isUndo || isOurs) event.preventDefault();
    };
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
    const isChange = text !== before.at(-1)?.text;
    this.texts = [...before, ...(isChange ? [{ text, caret }] : [])].slice(-MOST_CHANGES);
    this.now = this.texts.length - 1;
    this.change = isChange ? change : null;
  }

  // Remembers what the user typed; letters typed one after another, without a long pause, are one change.
  type(kind) {
    const typing = { kind, at_ms: performance.now() };
    const last = this.change;
    const isNear = Math.abs(this.field.selectionEnd - this.texts[this.now].caret) <= 2;
    const isSame = last?.kind === kind && /^(insert(Composition)?Text|delete)/.test(kind);
    const goesOn = isNear && isSame && typing.at_ms - last.at_ms < GROUP_MS;
    this.remember(goesOn ? Object.assign(last, typing) : typing);
    this.onChange();
  }

  canStep(by) {
    return !this.field.readOnly && Boolean(this.texts[this.now + by]);
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

  // Keeps the text in the browser's history of this tab, where a reload finds it and a new visit does not.
  save() {
    try {
      history.replaceState({ page: this.page, text: this.value }, "");
    } catch {
      // A browser may refuse a text that is very long.
    }
  }
}
