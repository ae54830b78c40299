// The section in which one trains models: the text, the settings, and the buttons.

const FIELDS = { own: "own-text", file: "own-file" }; // of choices of a text

class TrainView {
  constructor() {
    Object.assign(this, { form: byId("recipe"), trainer: null, text: null, run: null, compared: null });
    this.openText = oneAtATime(() => this.open());
    const { elements } = this.form;
    const { n_head, n_layer, n_embd, block_size } = training.settings.model;
    for (const [name, value] of Object.entries({ n_head, n_layer, n_embd, block_size })) elements[name].value = value;
    elements.source.options[0].textContent = `the play ${byId("corpus").dataset.name}`;
    statesOfThisPage.forEach((state, i) => {
      if (canTrain(configOf(state))) elements.from.append(make("option", state.name, { value: i }));
    });
    elements.from.parentElement.hidden = elements.from.options.length < 2;
    this.listen(byId("train"), elements.source);
    answerToPointer(byId("learning"));
    const works = {
      go: () => this.go(),
      longer: () => this.run.trainLonger(this.recipe.seconds),
      restart: () => this.begin(),
      best: () => this.goBack(),
      seeds: () => this.anotherSeed(),
      others: () => this.switchModels(),
      "save-page": () => this.save("page"),
      "save-checkpoint": () => this.save("checkpoint"),
    };
    makeButtons(Object.fromEntries(Object.entries(works).map(([id, work]) => [id, () => this.try(work)])));
    this.describe();
  }

  listen(section, source) {
    section.ontoggle = () => {
      if (!this.trainer) this.openText();
    };
    section.ondragover = (event) => event.preventDefault();
    section.ondrop = (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      byId("file").files = event.dataTransfer.files;
      source.value = "file";
      this.openText();
    };
    source.onchange = byId("file").onchange = this.openText;
    let pause = 0;
    byId("own").oninput = () => {
      clearTimeout(pause);
      pause = setTimeout(this.openText, INSIDE_MS);
    };
    this.form.onchange = () => this.describe();
    this.form.onsubmit = (event) => event.preventDefault();
    document.addEventListener("visibilitychange", () => this.run?.draw());
  }

  // Returns the settings of the form by name.
  get recipe() {
    const { source, from, ...numbers } = Object.fromEntries(new FormData(this.form));
    for (const name of Object.keys(numbers)) numbers[name] = Number(numbers[name]);
    return { source, from, ...numbers };
  }

  // Returns the settings of the models that the form describes. One that goes on training has those it had.
  get configs() {
    const { from, n_head, n_layer, n_embd, block_size, beside } = this.recipe;
    if (from) return [configOf(statesOfThisPage[from])];
    const shape = { ...training.settings.model, n_layer, n_embd, block_size };
    const heads = [...new Set([n_head, beside || n_head])];
    return heads.map((H) => ({ ...shape, n_head: H }));
  }

  say(message, isWarning = true) {
    say(message, byId("train-message"), isWarning);
  }

  // Does something, and shows its error; none if another run has begun meanwhile.
  async try(work) {
    try {
      await work();
    } catch (error) {
      if (!error.isEnd) this.say(error.message);
    }
  }

  // Gives the chosen text to a new trainer. Models that train keep their own.
  async open() {
    if (this.trainer !== this.run?.trainer) this.trainer?.end();
    this.trainer = new Engine("trainer");
    this.text = null;
    try {
      const text = await this.chosenText();
      await this.trainer.ask("start", { kernels: training.kernels });
      this.text = { ...text, ...(await this.trainer.ask("open", { bytes: text.bytes })) };
      if (!this.run) drawLearning(byId("learning"), this.text.lines, [], []);
      this.say("");
    } catch (error) {
      this.say(error.message);
    }
    this.describe();
  }

  // Returns the name and the bytes of the chosen text. Throws an error if there is none.
  async chosenText() {
    const { source } = this.recipe;
    const { dataset, textContent } = byId("corpus");
    if (source === "bundled") return { name: dataset.name, bytes: new Uint8Array(await unzipped(textContent)) };
    const [file] = byId("file").files;
    if (source === "file" && file) return { name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) };
    const { value } = byId("own");
    if (source === "own" && value) return { name: "pasted text", bytes: new TextEncoder().encode(value) };
    throw new Error(source === "own" ? "Paste a text into the field." : "Choose a file, or drop one here.");
  }

  // Shows what is known of the text and of the models, and what can be done.
  describe() {
    const { run, text, recipe } = this;
    for (const [choice, id] of Object.entries(FIELDS)) byId(id).hidden = recipe.source !== choice;
    byId("shape").hidden = Boolean(recipe.from);
    const V = text ? [...text.characters].length : 0;
    const sizes = this.configs.map(({ n_layer: L, n_head: H, n_embd: C }) => grouped(2 * V * C + L * (12 * C * C + H)));
    byId("facts").textContent = text
      ? `${grouped(text.n)} characters, ${V} different ones; the last tenth is held out: no model learns from its ` +
        `${grouped(text.heldOut)} characters. ${sizes.join(" and ")} parameters.`
      : "";
    byId("go").textContent = ["Train", "Go on", "Pause"][run ? 1 + run.isTraining : 0];
    enable("go", run ? run.isTraining || !run.isOver : text);
    enable("restart", text);
    enable(
      "best",
      run?.now?.losses.some(({ bestStep }) => bestStep < run.now.steps),
    );
    enable("seeds", run?.isOver && text);
    byId("seeds").hidden = !(run?.configs.length > 1);
    byId("others").textContent = run?.isShown ? `Back to ${statesOfThisPage[0].name}` : "Show what trains here";
    if (run?.whole && run.configs.length > 1) this.compare(run);
    for (const element of document.querySelectorAll(".of-run")) element.hidden = !run;
  }

  go() {
    if (!this.run) return this.begin();
    return this.run.isTraining ? this.run.pause() : this.run.train();
  }

  // Begins a run with the settings of the form.
  async begin() {
    if (!this.form.reportValidity()) return;
    const { trainer, text, recipe, configs } = this;
    const { optim, train } = training.settings;
    const own = statesOfThisPage[recipe.from];
    const weights = own ? [await weightsFor(text.characters, own)] : null;
    await trainer.ask("begin", { models: configs, optim, batch: train.batch_size, seed: recipe.seed, weights });
    this.run?.end();
    if (this.run && this.run.trainer !== trainer) this.run.trainer.end();
    const run = new Run(trainer, text, recipe, configs, () => this.describe());
    this.run = run;
    this.say("");
    if (this.compared?.key !== keyOf(run, recipe.seconds)) byId("comparison").replaceChildren();
    await run.show();
    await Promise.all([run.train(recipe.seconds), run.look(), run.keepLooking()]);
  }

  anotherSeed() {
    this.form.elements.seed.value = this.run.recipe.seed + 1;
    return this.begin();
  }

  // Adds the losses of two models that trained side by side to those of other seeds.
  compare(run) {
    const key = keyOf(run, run.seconds);
    if (this.compared?.key !== key) this.compared = { key, losses: new Map() };
    this.compared.losses.set(
      run.recipe.seed,
      run.whole.map(({ heldOut }) => heldOut),
    );
    showComparison(byId("comparison"), run.titles, this.compared.losses);
  }

  async goBack() {
    const { titles } = this.run;
    const losses = await this.run.goBack();
    const found = losses.map(
      ({ best, bestStep }, i) => `${titles[i]}: step ${grouped(bestStep)}, loss ${best.toFixed(3)}`,
    );
    this.say(`These are the best weights again. ${found.join("; ")}.`, false);
  }

  async switchModels() {
    if (!this.run.isShown) return this.run.show();
    this.run.isShown = false;
    await showModels(statesOfThisPage);
    this.describe();
  }

  // Saves the model that shades the text.
  async save(kind) {
    const { run } = this;
    const i = run.isShown ? shown : 0;
    await run.update();
    if (kind === "page") {
      download("gpt.html", await pageOf(source, run.stateOf(i), run.text));
      this.say(
        `Saved the model with ${run.titles[i]} as a page, gpt.html: open it, and it plays and trains on.`,
        false,
      );
    } else {
      download("gpt.safetensors", await checkpointOf(this.checkpoint(i)));
      this.say(
        `Saved the model with ${run.titles[i]} as gpt.safetensors. In the project's folder: ` +
          "python sample.py --checkpoint gpt.safetensors",
        false,
      );
    }
  }

  // Returns what a checkpoint has of a model; see save.js.
  checkpoint(i) {
    const { configs, text, recipe, step, weights, now } = this.run;
    const { train } = training.settings;
    const { best, bestStep } = now.losses[i];
    return {
      settings: { ...training.settings, model: configs[i], train: { ...train, seed: recipe.seed } },
      characters: text.characters,
      corpus: text,
      progress: {
        step,
        windows: step * train.batch_size,
        elapsed_s: now.seconds,
        best_loss: best,
        best_step: bestStep,
      },
      weights: weights[i],
      ancestor: statesOfThisPage[recipe.from]?.name,
    };
  }
}

const configOf = ({ checkpoints, chosen }) => checkpoints[chosen].header.config;

// What a comparison has in common with others that differ in the seed alone.
function keyOf({ recipe: { seed: _, ...recipe }, text }, seconds) {
  return JSON.stringify([recipe, seconds, text.name, text.n]);
}

// Returns the weights of a model of this page for another vocabulary.
async function weightsFor(characters, { checkpoints, chosen, characters: known }) {
  const { header, weights } = checkpoints[chosen];
  return adopt(await unpack(header.tensors, weights), known, characters);
}
