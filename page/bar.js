// The bar: what is trained, on which text, for how long, and the button that does the next sensible thing.

import { unzipped } from "./compute/weights.js";
import { byId, enable, grouped, make, makeButtons, oneAtATime, say } from "./panels/elements.js";
import { spokenTime } from "./panels/learned.js";
import { Run } from "./run.js";
import { ENDED, Engine } from "./workers/engine.js";

const TICK_MS = 250; // of the clock
const OWN = "own";

export class Bar {
  // training: what models are trained with here, see `make_page` in models.py. onChange(text): what is known or can be
  // done has changed.
  constructor(training, { desk, loss }, onChange) {
    Object.assign(this, { training, desk, loss, onChange, trainer: null, file: null, text: null, run: null });
    Object.assign(this, { form: byId("bar"), noted_ms: 0, isBeginning: false, words: "", error: "" });
    this.openText = oneAtATime(() => this.open());
    byId("source").append(make("option", byId("corpus").dataset.name, { value: "" }));
    this.listen();
    makeButtons({
      go: () => this.try(() => this.go()),
      "own-text": () => byId("take").showModal(),
    });
    setInterval(() => this.showClock(), TICK_MS);
    this.describe();
  }

  listen() {
    document.ondragover = (event) => event.preventDefault();
    document.ondrop = (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault(); // the browser would leave the page
      this.try(() => this.takeFile(event.dataTransfer));
    };
    byId("file").onchange = ({ target }) => this.try(() => this.takeFile(target));
    byId("take").onsubmit = ({ submitter: { value } }) => {
      if (value === "use") this.take("pasted text", new TextEncoder().encode(byId("pasted").value));
    };
    byId("source").onchange = this.openText;
    this.form.onchange = () => this.try(() => {});
    this.form.onsubmit = (event) => event.preventDefault(); // by Enter in a choice
  }

  async takeFile({ files: [file] }) {
    if (!file) return;
    byId("take").close();
    byId("file").value = ""; // so that the same file can be chosen again
    this.take(file.name, new Uint8Array(await file.arrayBuffer()));
    byId("pasted").value = "";
  }

  // Takes a text of the visitor, in place of the one before.
  take(name, bytes) {
    this.file = { name, bytes };
    byId("source").options[1]?.remove();
    byId("source").append(make("option", name, { value: OWN }));
    byId("source").value = OWN;
    this.openText();
  }

  // Returns the settings of the models that the form describes.
  get configs() {
    const [n_layer, n_embd, block_size] = byId("size").value.split(" ").map(Number);
    const { n_head, beside } = this.form.elements;
    const heads = new Set([n_head.value, beside.value || n_head.value]);
    return [...heads].map((H) => ({ ...this.training.settings.model, n_layer, n_embd, block_size, n_head: Number(H) }));
  }

  get seconds() {
    return Number(this.form.elements.seconds.value);
  }

  // What distinguishes runs but for their time.
  get key() {
    return JSON.stringify([this.configs, this.text?.key]);
  }

  // Does something that the visitor asks for. Its error is shown, unless another run has begun meanwhile.
  async try(work) {
    if (this.text) this.error = "";
    this.describe();
    try {
      await work();
    } catch (error) {
      if (error !== ENDED) this.error = error.message;
    }
    this.describe();
  }

  // Gives the chosen text to the trainer of the next run, or says why it cannot be learned.
  async open() {
    this.trainer?.end();
    this.trainer = new Engine("trainer");
    Object.assign(this, { text: null, words: "", error: "" });
    this.describe();
    try {
      const given = byId("source").value === OWN ? this.file : await textOfPage();
      const found = await this.trainer.ask("open", { bytes: given.bytes, kernels: this.training.kernels });
      const key = JSON.stringify([given.name, found.n, found.lines]); // the same for the same text
      this.text = { ...given, ...found, key };
      this.words = `${grouped(found.n)} characters, ${grouped([...found.characters].length)} different.`;
    } catch ({ message }) {
      this.error = message;
    }
    this.describe();
  }

  // Shows what is known of the text, and what can be done.
  describe() {
    const { run, text } = this;
    const { elements } = this.form;
    for (const radio of elements.beside) radio.disabled = radio.value === elements.n_head.value;
    if (elements.beside.value === elements.n_head.value) elements.beside[0].checked = true;
    say(this.error || this.words, byId("said"), this.error !== "");
    const isTraining = this.isBeginning || run?.isTraining;
    const isNew = run?.key !== this.key;
    const again = run?.now?.isOver ? "Train longer" : "Go on";
    const label = isNew ? "Train" : again;
    byId("go").textContent = isTraining ? "❚❚ Pause" : `▶ ${label}`;
    enable("go", isTraining || text);
    this.showClock();
    this.onChange(text);
  }

  showClock() {
    const { now, isTraining } = this.run ?? {};
    if (!now) return;
    if (this.noted !== now) Object.assign(this, { noted: now, noted_ms: performance.now() });
    const since_s = isTraining ? (performance.now() - this.noted_ms) / 1000 : 0;
    const seconds = Math.min(now.seconds + since_s, now.until);
    byId("clock").textContent = `${spokenTime(seconds)} of ${spokenTime(now.until)}`;
    byId("rate").textContent = now.seconds ? `${grouped(now.characters / now.seconds)} characters/s` : "";
    this.form.style.setProperty("--share", seconds / now.until);
  }

  go() {
    const { run } = this;
    if (this.isBeginning) return null; // the second click of two
    if (run?.isTraining) return run.trainer.ask("pause");
    if (run?.key !== this.key) return this.begin();
    return run.train(run.now?.isOver === false ? null : this.seconds);
  }

  async begin() {
    this.isBeginning = true;
    this.describe();
    await this.beginRun().finally(() => {
      this.isBeginning = false;
    });
    await this.run.train(this.seconds);
  }

  async beginRun() {
    const { trainer, text, configs, key, training } = this;
    const { optim, train } = training.settings;
    await trainer.ask("begin", { models: configs, optim, batch: train.batch_size, seed: train.seed });
    this.run?.end();
    const parts = { desk: this.desk, loss: this.loss, lookAlikes: training.look_alikes };
    const onChange = () => this.describe();
    this.run = new Run({ trainer, text, configs, key, ...parts, onChange });
    this.trainer = null; // it is the run's
    await this.run.begin();
    this.openText(); // for another run
  }
}

async function textOfPage() {
  const { dataset, textContent } = byId("corpus");
  return { name: dataset.name, bytes: new Uint8Array(await unzipped(textContent)), isOfPage: true };
}
