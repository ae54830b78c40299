// Models that train in this page: how they do, what they have learned, and what they write.

const LOOK_MS = 1000; // between looks at the models, at least; and each look is followed by a pause,
const PAUSE = 9; // this many times as long as it took: looking takes at most a tenth of the time
const SAMPLE = { text: "", off: [], length: 120, stop: "", temperature: 0.8, top_k: null, top_p: 1, min_p: 0 };
const RISEN = 0.02; // nats above the best loss on the held-out text, while that in training falls
const BEATEN = 0.01; // nats below the loss of a simpler guess
const LINES = { even: "guessing evenly", single: "counts of characters", pairs: "counts of pairs" };
const LEARNED = {
  even: "beats guessing evenly: it learns which characters are frequent.",
  single: "beats the counts of characters: it knows which are frequent, and learns which follow which.",
  pairs: "beats the counts of pairs: it knows which follow which. From now on, it must look further back.",
};
const grouped = (n) => Math.round(n).toLocaleString("en");
const titleOf = ({ n_head: H }) => `${H} head${H > 1 ? "s" : ""}`;

class Run {
  // trainer: it has begun with models of these configs, for this text. text: the answer of `open` in trainer.js, with the
  // name and the bytes of the text. onChange() follows each change of what can be done.
  constructor(trainer, text, recipe, configs, onChange) {
    Object.assign(this, { trainer, text, recipe, configs, onChange, titles: configs.map(titleOf) });
    Object.assign(this, { history: [], told: new Set(), nLooks: 0, isTraining: false, isEnded: false });
    this.writer = new Engine("engine"); // so that a sample leaves alone what the visitor's models do
    this.look = oneAtATime(() => this.showAndWrite());
    const places = this.titles.map((title) => make("section", [make("h3", `Written by ${title}`), make("pre")]));
    byId("samples").replaceChildren(...places);
    const keys = this.titles.map((title, i) => make("span", title, { style: `--key: var(--series-${i})` }));
    byId("keys").replaceChildren(...keys);
    byId("learned").replaceChildren();
    byId("progress").textContent = "";
    say("", byId("risen"));
    this.draw();
  }

  get now() {
    return this.history.at(-1);
  }

  // Whether these models are on the page.
  get isShown() {
    return models === this.models;
  }

  end() {
    this.isEnded = true;
    this.writer.end();
  }

  // Asks the trainer. Throws ENDED if another run has begun before the answer.
  async ask(path, question, pass) {
    const answer = await this.trainer.ask(path, question, pass);
    if (this.isEnded) throw ENDED;
    return answer;
  }

  // Trains for some seconds or, without them, for the time that was left.
  async train(seconds) {
    Object.assign(this, { isTraining: true, whole: null });
    this.onChange();
    const end = await this.ask("train", { seconds }, (soFar) => this.note(soFar));
    this.isTraining = false;
    this.note(end);
    await this.look();
    if (!end.isOver) return;
    const whole = await this.ask("evaluate");
    if (this.isTraining) return; // it trains longer
    this.whole = whole;
    this.onChange();
    this.draw();
  }

  async trainLonger(seconds) {
    if (this.now.isOver && !this.isTraining) return this.train(seconds);
    await this.ask("longer", { seconds });
    if (!this.isTraining) await this.train();
  }

  // Gives the models the weights of their best evaluations.
  async goBack() {
    await this.ask("pause");
    this.whole = null;
    this.note(await this.ask("goBack"));
    await this.look();
  }

  // Remembers where the models are, and says what they have learned.
  note(now) {
    this.history.push(now);
    const { lines } = this.text;
    now.losses.forEach(({ best }, i) => {
      const isBeaten = (_, n, all) => all.slice(0, n + 1).every((line) => best < lines[line] - BEATEN);
      const line = Object.keys(LINES).filter(isBeaten).at(-1);
      if (line) this.tell(i, line, LEARNED[line]);
    });
    const risen = now.losses.flatMap(({ train, heldOut, best, bestStep }, i) => {
      const atBest = this.history.find(({ steps }) => steps === bestStep)?.losses[i].train;
      const isByHeart = heldOut > best + RISEN && train < atBest; // a higher learning rate raises both losses
      return isByHeart ? `step ${grouped(bestStep)} of ${this.titles[i]}, loss ${best.toFixed(3)}` : [];
    });
    const warning =
      "On held-out text the loss has risen: the text is learned by heart. " +
      `“Go back to the best” brings back ${risen.join(" and ")}.`;
    say(risen.length ? warning : "", byId("risen"));
    this.onChange();
    this.draw();
  }

  // Adds a sentence on what a model does by now, once for each thing.
  tell(i, thing, does) {
    const key = `${i} ${thing}`;
    if (this.told.has(key) || !this.now?.characters) return;
    this.told.add(key);
    const sentence = `After ${grouped(this.now.characters)} characters, the model with ${this.titles[i]} ${does}`;
    byId("learned").prepend(make("p", sentence)); // the newest is in sight
  }

  draw() {
    if (document.hidden) return;
    drawLearning(byId("learning"), this.text.lines, this.titles, this.history);
    if (!this.now?.characters) return;
    const { characters, seconds, until, passes, losses } = this.now;
    const found = losses.map(({ heldOut }, i) => {
      const trained = this.history.map((each) => each.losses[i].train).filter(Number.isFinite); // of those after a step
      return `${this.titles[i]}: loss ${trained.at(-1).toFixed(3)} in training, ${heldOut.toFixed(3)} held out`;
    });
    const whole = this.whole?.map(({ loss }, i) => `${this.titles[i]} ${loss.toFixed(4)}`).join(", ");
    const atEnd = whole ? ` Over ${grouped(this.whole[0].n)} characters of the held-out text: ${whole}.` : "";
    const rate = grouped(characters / seconds);
    byId("progress").textContent =
      `${Math.floor(seconds)} of ${grouped(until)} s, ${grouped(characters)} characters, ${rate} per second; ` +
      `the text was read ${passes.toFixed(1)} times. ${found.join("; ")}.${atEnd}`;
  }

  // Asks for the models' steps and weights.
  async update() {
    this.newest = await this.ask("look");
  }

  // Shows these models in place of the others. A text that they cannot read gives way to one that they can.
  async show() {
    await this.update();
    const states = this.configs.map((_, i) => this.stateOf(i));
    await showModels(states);
    this.models = models;
    const [{ header, characters }] = states;
    if ([...box.value].some((each) => !header.characters.includes(each) && !(each in header.alike))) {
      box.set(inBox(this.text.opening, characters));
      edited();
    }
    this.onChange();
  }

  // Returns what a page shows of a model as it is now; see save.js.
  stateOf(i) {
    const curveOf = (name) =>
      this.history.map(({ steps, losses }) => [steps, losses[i][name]]).filter(([, loss]) => Number.isFinite(loss));
    return stateOf({
      name: `${this.titles[i]}, trained here`,
      text: this.text,
      config: this.configs[i],
      ...this.newest[i],
      train_loss: curveOf("train"),
      val_loss: curveOf("heldOut"),
    });
  }

  // Shows what the models make of the text in the box, and a sample of each or, while they train, of one after another.
  async showAndWrite() {
    await this.update();
    const shownHere = this.isShown ? models : [];
    await Promise.all(shownHere.map((model, i) => model.refresh(this.stateOf(i).checkpoints[0])));
    const next = this.isTraining && this.nLooks ? [this.nLooks % this.configs.length] : this.configs.keys();
    this.nLooks += 1;
    for (const i of next) {
      const { header, checkpoints } = this.stateOf(i);
      await this.writer.ask("load", { ...checkpoints[0], header: { ...header, ...checkpoints[0].header } });
      const written = await this.writer.ask("write", { ...SAMPLE, seed: this.nLooks });
      byId("samples").children[i].lastChild.textContent = written;
    }
    shownHere.forEach(({ viewer: { names, roles = [] } }, i) => {
      roles.forEach(([role, figure], h) => {
        if (role === "no fixed target") return;
        this.tell(i, role, `has a head for “${role}”: ${names[h]} gives it ${figure} of its weight on your text.`);
      });
    });
  }

  async keepLooking() {
    while (!this.isEnded) {
      const began_ms = performance.now();
      if (this.isTraining && !document.hidden) await this.look();
      const took_ms = performance.now() - began_ms;
      await new Promise((go) => setTimeout(go, Math.max(LOOK_MS, PAUSE * took_ms)));
    }
  }
}

// Draws the losses of models that learn, beside those of simpler guesses.
function drawLearning(svg, lines, titles, history) {
  svg.setAttribute("viewBox", `0 0 ${svg.clientWidth || 360} 240`); // labels have the same size in every window
  const last = history.at(-1)?.characters ?? 0;
  const curve = (i, name, kind) =>
    history.flatMap(({ characters, losses }) => {
      const loss = losses[i][name];
      const spoken = `${titles[i]}, ${kind}, after ${grouped(characters)} characters: ${loss.toFixed(4)}`;
      return Number.isFinite(loss) ? [[characters, loss, spoken]] : [];
    });
  const curves = titles.flatMap((_, i) => [
    { points: curve(i, "train", "in training"), colour: i, width: 1 },
    { points: curve(i, "heldOut", "held out"), colour: i, width: 0 },
  ]);
  const labels = Object.entries(LINES).map(([line, label]) => [lines[line], `${label}: ${lines[line].toFixed(2)}`]);
  drawChart(svg, curves, `${grouped(last)} characters`, labels);
}
