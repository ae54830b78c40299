// Models that train in this page: how they do, what they have learned, and what they write.

const LOOK_MS = 1000; // between looks at the models, at least; and each look is followed by a pause,
const PAUSE = 9; // this many times as long as it took: looking takes at most a tenth of the time
const SAMPLE = { text: "", off: [], length: 120, stop: "", temperature: 0.8, top_k: null, top_p: 1, min_p: 0 };
const RISEN = 0.02; // nats above the best loss on the held-out text show that a model learns its text by heart
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
    Object.assign(this, {
      history: [],
      reached: configs.map(() => -1),
      roles: configs.map(() => new Set()),
      seconds: 0,
      nLooks: 0,
    });
    Object.assign(this, { isTraining: false, isOver: false, isShown: false, isEnded: false });
    this.writer = new Engine("engine"); // so that a sample leaves alone what the visitor's models do
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

  end() {
    this.isEnded = true;
    this.writer.end();
  }

  // Trains for some seconds or, without them, for the time that was left.
  async train(seconds = 0) {
    this.seconds += seconds;
    Object.assign(this, { isTraining: true, isOver: false, isBest: false, whole: null });
    this.onChange();
    const end = await this.trainer.ask("train", { seconds }, (soFar) => this.note(soFar));
    if (this.isEnded) return;
    Object.assign(this, { isTraining: false, isOver: end.isOver });
    this.note(end);
    await this.look(true);
    if (!end.isOver) return;
    this.whole = (await this.trainer.ask("evaluate")).losses.map(({ heldOut }) => heldOut);
    this.onChange();
    this.draw();
  }

  async trainLonger(seconds) {
    if (this.isOver) return this.train(seconds);
    await this.trainer.ask("longer", { seconds });
    this.seconds += seconds;
    if (!this.isTraining) await this.train();
  }

  get canGoBack() {
    return this.now?.losses.some(({ bestStep }) => bestStep < this.now.steps);
  }

  // Gives the models the weights of their best evaluations.
  async goBack() {
    await this.trainer.ask("pause");
    this.note(await this.trainer.ask("goBack"));
    this.isBest = true;
    await this.look(true);
  }

  // Remembers where the models are, and says what they have learned.
  note(now) {
    if (this.isEnded) return;
    this.history.push(now);
    now.losses.forEach(({ heldOut }, i) => {
      const reached = Object.keys(LINES).findLastIndex((line) => heldOut < this.text.lines[line]);
      if (reached > this.reached[i]) this.tell(i, Object.values(LEARNED)[reached]);
      this.reached[i] = Math.max(reached, this.reached[i]);
    });
    const risen = now.losses.flatMap(({ heldOut, best, bestStep }, i) =>
      heldOut > best + RISEN ? `step ${grouped(bestStep)} of ${this.titles[i]}, loss ${best.toFixed(3)}` : [],
    );
    const advice = `“Go back to the best” brings back ${risen.join(" and ")}.`;
    say(
      risen.length ? `On held-out text the loss has risen: the text is learned by heart. ${advice}` : "",
      byId("risen"),
    );
    this.onChange();
    this.draw();
  }

  // Adds a sentence on what a model does by now.
  tell(i, does) {
    const sentence = `After ${grouped(this.now.characters)} characters, the model with ${this.titles[i]} ${does}`;
    byId("learned").append(make("p", sentence));
  }

  // Says which heads of a model look at something that no head of it looked at before.
  tellRoles(i, { names, roles = [] }) {
    roles.forEach(([role, figure], h) => {
      if (role === "no fixed target" || this.roles[i].has(role)) return;
      this.roles[i].add(role);
      this.tell(i, `has a head for “${role}”: ${names[h]} gives it ${figure} of its weight on your text.`);
    });
  }

  draw() {
    if (document.hidden) return;
    drawLearning(byId("learning"), this.text.lines, this.titles, this.history);
    if (!this.now?.steps) return;
    const { characters, seconds, passes, rate, losses } = this.now;
    const found = losses.map(({ heldOut }, i) => {
      const trained = this.history.map((each) => each.losses[i].train).filter(Number.isFinite); // of those after a step
      return `${this.titles[i]}: loss ${trained.at(-1).toFixed(3)} in training, ${heldOut.toFixed(3)} held out`;
    });
    const whole = this.whole?.map((loss, i) => `${this.titles[i]} ${loss.toFixed(4)}`).join(", ");
    const atEnd = whole ? ` Over all that is held out: ${whole}.` : "";
    byId("progress").textContent =
      `${grouped(seconds)} of ${this.seconds} s, ${grouped(characters)} characters, ${grouped(rate)} per second; ` +
      `the text was read ${passes.toFixed(1)} times. ${found.join("; ")}.${atEnd}`;
  }

  // Asks for the step and the weights of the models.
  async update() {
    Object.assign(this, await this.trainer.ask("look"));
  }

  // Shows these models in place of the others. A text that they cannot read gives way to one that they can.
  async show() {
    await this.update();
    const states = this.configs.map((_, i) => this.stateOf(i));
    await showModels(states);
    this.isShown = true;
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
      text: this.text.name,
      config: this.configs[i],
      characters: this.text.characters,
      opening: this.text.opening,
      step: this.isBest ? this.now.losses[i].bestStep : this.step,
      weights: this.weights[i],
      trainLoss: curveOf("train"),
      valLoss: curveOf("heldOut"),
    });
  }

  // Shows what the models make of the text in the box, and a sample of one of them or of all.
  async look(ofAll = false) {
    await this.update();
    if (this.isEnded) return;
    const shownHere = this.isShown ? models : [];
    await Promise.all(shownHere.map((model, i) => model.refresh(this.stateOf(i).checkpoints[0])));
    if (this.isEnded) return;
    shownHere.forEach(({ viewer }, i) => this.tellRoles(i, viewer));
    const next = this.nLooks++ % this.configs.length;
    for (const i of ofAll ? this.configs.keys() : [next]) {
      const { header, checkpoints } = this.stateOf(i);
      await this.writer.ask("load", { ...checkpoints[0], header: { ...header, ...checkpoints[0].header } });
      const written = await this.writer.ask("write", { ...SAMPLE, seed: this.step });
      if (!this.isEnded) byId("samples").children[i].lastChild.textContent = written;
    }
  }

  async keepLooking() {
    let took_ms = 0;
    while (!this.isEnded) {
      await new Promise((go) => setTimeout(go, Math.max(LOOK_MS, PAUSE * took_ms)));
      const began_ms = performance.now();
      if (this.isTraining && !document.hidden) await this.look();
      took_ms = performance.now() - began_ms;
    }
  }
}

// Draws the losses of models that learn, beside those of simpler guesses.
function drawLearning(svg, lines, titles, history) {
  svg.setAttribute("viewBox", `0 0 ${svg.clientWidth || 360} 240`); // labels have the same size in every window
  const last = history.at(-1)?.characters ?? 0;
  const curve = (i, name, kind) =>
    history.flatMap(({ characters, losses }, pass) => {
      const loss = losses[i][name];
      const spoken = `${titles[i]}, ${kind}, after ${grouped(characters)} characters: `;
      const isNew = loss !== history[pass - 1]?.losses[i][name];
      return isNew && Number.isFinite(loss) ? [[characters, loss, spoken + loss.toFixed(4)]] : [];
    });
  const curves = titles.flatMap((_, i) => [
    { points: curve(i, "train", "in training"), colour: i, width: 1 },
    { points: curve(i, "heldOut", "held out"), colour: i, width: 0 },
  ]);
  const labels = Object.entries(LINES).map(([line, label]) => [lines[line], `${label}: ${lines[line].toFixed(2)}`]);
  drawChart(svg, curves, `${grouped(last)} characters`, labels);
}
