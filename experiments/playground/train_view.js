// The section in which one trains models: the text, the settings, and the buttons.

const MOST_READ = 2 ** 25; // bytes of a file: more than the trainer accepts

class TrainView {
  // own: the name and the bytes of the visitor's text.
  constructor() {
    Object.assign(this, { form: byId("recipe"), trainer: null, own: null, text: null, run: null, compared: null });
    this.openText = oneAtATime(() => this.try(() => this.open()));
    this.begin = oneAtATime(() => this.try(() => this.beginRun()));
    const { n_head, n_layer, n_embd, block_size } = training.settings.model;
    for (const [name, value] of Object.entries({ n_head, n_layer, n_embd, block_size })) this.form[name].value = value;
    byId("source").options[0].textContent = `${byId("corpus").dataset.name}, in this page`;
    statesOfThisPage.forEach((state, i) => {
      if (state.can_train) byId("from").append(make("option", state.name, { value: i }));
    });
    byId("from").parentElement.hidden = byId("from").options.length < 2;
    this.listen(byId("train"));
    answerToPointer(byId("learning"));
    const works = {
      go: () => this.go(),
      longer: () => this.run.trainLonger(this.recipe.seconds),
      restart: () => this.begin(),
      best: () => this.run.goBack(),
      seeds: () => {
        this.form.elements.seed.value = this.run.recipe.seed + 1;
        return this.begin();
      },
      others: () => this.switchModels(),
      "save-page": () => this.save("gpt.html", pageWith, "as a page, gpt.html, which can train it further."),
      "save-checkpoint": () =>
        this.save(
          "gpt.safetensors",
          checkpointWith,
          "as gpt.safetensors; in the project: python sample.py --checkpoint gpt.safetensors",
        ),
    };
    makeButtons(Object.fromEntries(Object.entries(works).map(([id, work]) => [id, () => this.try(work)])));
    this.describe();
  }

  listen(section) {
    section.ontoggle = () => {
      if (!this.trainer) this.openText();
    };
    document.ondragover = (event) => event.preventDefault();
    document.ondrop = (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault(); // the browser would leave the page
      section.open = true;
      this.try(() => this.takeFile(event.dataTransfer));
    };
    byId("file").onchange = ({ target }) => this.try(() => this.takeFile(target));
    byId("own").oninput = ({ target }) => this.take("pasted text", new TextEncoder().encode(target.value));
    byId("source").onchange = this.openText;
    this.form.onchange = ({ target }) => {
      if (byId("shape").contains(target)) this.say(""); // what was refused may be right now
      this.describe();
    };
    this.form.onsubmit = (event) => event.preventDefault();
    document.addEventListener("visibilitychange", () => this.run?.draw());
  }

  async takeFile({ files: [file] }) {
    if (!file) return;
    const start = file.slice(0, MOST_READ);
    this.take(file.name, new Uint8Array(await start.arrayBuffer()));
    byId("own").value = "";
  }

  take(name, bytes) {
    this.own = { name, bytes };
    byId("source").value = "own";
    this.openText();
  }

  // Returns the settings of the form by name.
  get recipe() {
    return Object.fromEntries([...new FormData(this.form)].map(([name, value]) => [name, Number(value)]));
  }

  // Returns the settings of the models that the form describes. A model that trains further keeps its own.
  get configs() {
    if (this.from) return [configOf(this.from)];
    const { n_head, n_layer, n_embd, block_size, beside } = this.recipe;
    const shape = { ...training.settings.model, n_layer, n_embd, block_size };
    const heads = [...new Set([n_head, beside || n_head])];
    return heads.map((H) => ({ ...shape, n_head: H }));
  }

  // Returns the model of this page with which training begins; undefined: with new weights.
  get from() {
    return statesOfThisPage[byId("from").value];
  }

  say(message, isWarning = true) {
    say(message, byId("train-message"), isWarning);
  }

  // Does something, and shows its error; none if another run has begun meanwhile.
  async try(work) {
    try {
      await work();
    } catch (error) {
      if (error !== ENDED) this.say(error.message);
    }
  }

  // Gives the chosen text to a new trainer. Models that train keep their own.
  async open() {
    if (this.trainer !== this.run?.trainer) this.trainer?.end();
    this.trainer = new Engine("trainer");
    this.text = null;
    this.describe();
    this.say("");
    await this.trainer.ask("start", training);
    const { dataset, textContent } = byId("corpus");
    const ofPage = async () => ({ name: dataset.name, bytes: new Uint8Array(await unzipped(textContent)) });
    const text = byId("source").value ? this.own : await ofPage();
    if (!text) return this.say("Paste a text, or choose a file.", false);
    this.text = { ...text, ...(await this.trainer.ask("open", { bytes: text.bytes })) };
    if (!this.run) drawLearning(byId("learning"), this.text.lines, [], []);
    this.describe();
  }

  // Shows what is known of the text and of the models, and what can be done.
  describe() {
    const { run, text } = this;
    const { losses = [], steps, isOver } = run?.now ?? {};
    const hasBetter = losses.some(({ bestStep }) => bestStep < steps);
    byId("own-text").hidden = !byId("source").value;
    byId("shape").hidden = Boolean(this.from);
    const V = text ? [...text.characters].length : 0;
    const sizes = this.configs.map(({ n_layer: L, n_head: H, n_embd: C }) => grouped(2 * V * C + L * (12 * C * C + H)));
    for (const option of this.form.beside.options) option.disabled = option.value === this.form.n_head.value;
    if (this.form.beside.value === this.form.n_head.value) this.form.beside.value = "";
    byId("facts").textContent = text
      ? `${run ? "“Start again” trains on " : ""}${grouped(text.n)} characters, ${V} different ones; the last tenth is held out: no model learns from its ` +
        `${grouped(text.heldOut)} characters. ${sizes.join(" and ")} parameters.`
      : "";
    byId("go").textContent = ["Train", "Go on", "Pause"][run ? 1 + run.isTraining : 0];
    enable("go", run ? run.isTraining || !isOver : text);
    enable("restart", text);
    enable("best", hasBetter);
    enable("seeds", isOver && !run.isTraining && text);
    byId("seeds").hidden = !(run?.configs.length > 1);
    byId("others").textContent = run?.isShown ? `Back to ${statesOfThisPage[0].name}` : "Show what trains here";
    if (run?.whole && run.configs.length > 1) this.compare(run);
    for (const element of document.querySelectorAll(".of-run")) element.hidden = !run?.now;
  }

  go() {
    if (!this.run) return this.begin();
    return this.run.isTraining ? this.run.trainer.ask("pause") : this.run.train();
  }

  // Begins a run with the settings of the form.
  async beginRun() {
    if (!this.form.reportValidity() || !this.text) return;
    const { trainer, text, recipe, configs, from } = this;
    const { optim, train } = training.settings;
    const given = from ? await trainedSoFar(from, text.characters) : {};
    await trainer.ask("begin", { models: configs, optim, batch: train.batch_size, seed: recipe.seed, ...given });
    this.run?.end();
    if (this.run && this.run.trainer !== trainer) this.run.trainer.end();
    const run = new Run(trainer, text, { ...recipe, ancestor: from?.name }, configs, () => this.describe());
    this.run = run;
    this.say("");
    if (this.compared?.key !== keyOf(run, recipe.seconds)) byId("comparison").replaceChildren();
    await run.show();
    this.try(() => run.train(recipe.seconds));
    this.try(() => run.keepLooking());
  }

  // Adds the losses of two models that trained side by side to those of other seeds.
  compare(run) {
    const key = keyOf(run, Math.round(run.now.until));
    if (this.compared?.key !== key) this.compared = { key, losses: new Map() };
    this.compared.losses.set(run.recipe.seed, run.whole);
    showComparison(byId("comparison"), run.titles, this.compared.losses);
  }

  async switchModels() {
    if (!this.run.isShown) return this.run.show();
    await showModels(statesOfThisPage);
    this.describe();
  }

  // Saves the model that shades the text, as it is now. contentOf: returns the content of the file.
  async save(file, contentOf, words) {
    const { run } = this;
    await run.update();
    const i = run.isShown ? shown : 0;
    download(file, await contentOf(run, i));
    this.say(`Saved the model with ${run.titles[i]} ${words}`, false);
  }
}

const pageWith = (run, i) => pageOf(source, run.stateOf(i), run.text);

function checkpointWith({ newest, now, text, recipe, configs }, i) {
  const { train } = training.settings;
  const { step, weights } = newest[i];
  const { best, bestStep } = now.losses[i];
  const windows = step * train.batch_size;
  return checkpointOf({
    settings: { ...training.settings, model: configs[i], train: { ...train, seed: recipe.seed } },
    corpus: text,
    progress: { step, windows, elapsed_s: now.seconds, best_loss: best, best_step: bestStep },
    weights,
    ancestor: recipe.ancestor,
  });
}

const configOf = ({ checkpoints, chosen }) => checkpoints[chosen].header.config;

// What a comparison has in common with others that differ in the seed alone.
function keyOf({ recipe: { seed: _, ...recipe }, text }, seconds) {
  return JSON.stringify([recipe, seconds, text.name, text.lines]);
}

// Returns the step and the weights of a model of this page, with the vocabulary of another text.
async function trainedSoFar({ checkpoints, chosen, characters: known }, characters) {
  const { step, header, weights } = checkpoints[chosen];
  return { step, weights: [adopt(await unpack(header.tensors, weights), known, characters)] };
}
