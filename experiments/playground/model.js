// One model of the playground: its worker, its predictions, its losses, and what its heads and layers do.

const PATIENCE_MS = 500; // before progress is shown
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

class Model {
  constructor(state, index, letter) {
    Object.assign(this, { state, index, letter, off: new Set(), reading: null, costs: new Map() });
    this.engine = new Engine("engine");
    this.read = oneAtATime(() => this.readAndShowProgress());
    this.root = byId("model").content.firstElementChild.cloneNode(true);
    this.part = (name) => this.root.querySelector(`.${name}`);
    byId("models").append(this.root);
    const heads = state.parts.filter((part) => /^L\d+H\d+$/.test(part));
    this.viewer = new Viewer(this.part, heads, (query) => point(this.characterOf(query), true), state.header.measured);
    const [inside, steps] = [this.part("inside"), this.part("steps")];
    this.steps = new Steps(this.part);
    this.diagram = new Diagram(this.part("diagram"), state.checkpoints[0].header, (h) => {
      inside.open = true;
      if (this.reading) this.viewer.chooseHead(h);
    });
    this.lookInside = oneAtATime(async () => {
      const isNeeded = inside.open || steps.open || sheet.root.dataset.by === "attention";
      if (isNeeded) await this.compute("inside", this.showInside);
    });
    this.lookAtHead = oneAtATime(async () => {
      if (steps.open && this.viewer.weights) await this.compute("head", this.showHead);
    });
    inside.ontoggle = steps.ontoggle = () => this.lookIfRead();
    this.part("how").onclick = () => {
      steps.open = true;
      steps.scrollIntoView();
    };
    this.part("which").append(...heads.map((name) => make("option", name)));
    this.part("which").onchange = ({ target }) => this.viewer.chooseHead(target.selectedIndex);
    const switches = state.parts.map((name) => make("button", name, { onclick: () => this.flip(name) }));
    this.part("switches").append(...switches);
    this.part("no-target").textContent = state.no_target;
    const V = [...state.header.characters].length;
    this.part("even").textContent =
      `Guessing evenly among its ${V} characters costs ${Math.log2(V).toFixed(1)} bits each.`;
    const slider = this.part("checkpoint");
    slider.max = state.checkpoints.length - 1;
    slider.value = state.chosen;
    slider.oninput = () => this.choose(Number(slider.value));
    slider.parentElement.hidden = state.checkpoints.length < 2;
    inside.open = innerWidth >= 960;
    drawRun(this.part("losses"), state.train_loss, state.val_loss);
    answerToPointer(this.part("losses"));
    this.showSwitches();
    this.choose(state.chosen);
  }

  // Asks the worker, once its weights are loaded; see Engine.
  async ask(path, question, pass) {
    await this.loaded;
    return this.engine.ask(path, question, pass);
  }

  end() {
    this.engine.end();
    this.root.remove();
  }

  say(message, element = this.part("message")) {
    say(message && this.letter ? `Model ${this.letter}: ${message}` : message, element);
  }

  request() {
    return { text: box.value, off: [...this.off], name: this.viewer.names[this.viewer.head], t: this.viewer.query };
  }

  // Reads the text; if that takes long, a bar shows how much is read. While a text is written, readings are short.
  async readAndShowProgress() {
    const [progress, began_ms] = [this.part("progress"), performance.now()];
    await this.compute("read", this.showReading, (share) => {
      progress.value = share;
      progress.hidden = writing || performance.now() - began_ms < PATIENCE_MS;
    });
    progress.hidden = true;
  }

  // Passes the answer and the request to `show`, or shows the error.
  async compute(path, show, pass) {
    const [request, weights] = [this.request(), this.part("name").textContent];
    try {
      show.call(this, await this.ask(path, request, pass), request, weights);
    } catch (error) {
      this.say(error.message);
    }
  }

  showReading(answer, request, weights) {
    const isAsked = this.root.classList.contains("stale"); // or else other weights have answered the same question
    Object.assign(this, { reading: answer, readText: request.text, nRead: [...request.text].length });
    const isAnswered = request.text === box.value && String(request.off) === String([...this.off]);
    this.root.classList.toggle("stale", !isAnswered);
    this.say(remarksOn([...request.text], answer, this.state.header.alike));
    this.showBars(answer.next);
    if (isAsked) this.viewer.begin(answer.shown);
    const n = answer.shown.length - 1;
    const bits = answer.nats / Math.LN2;
    const before = answer.start ? ` (the context window starts at character ${answer.start})` : "";
    this.part("totals").textContent = n
      ? `${n === 1 ? "1 character costs" : `${n} characters cost`} ${answer.nats.toFixed(2)} nats, ${bits.toFixed(2)} bits: ${(bits / n).toFixed(3)} bits each${before}`
      : "The first character is not predicted; type a second one.";
    this.showCosts(request, weights, n ? bits / n : 0);
    drawText();
  }

  // Shows the likeliest next characters; the buttons stay, so that the keyboard keeps its place.
  showBars(next) {
    const bars = this.part("next");
    if (!bars.children.length) {
      bars.append(
        ...next.map((_, i) => make("button", [make("span"), " ", make("span")], { onclick: () => this.take(i) })),
      );
    }
    next.forEach(([label, , probability], i) => {
      const [button, share] = [bars.children[i], percent(probability)];
      button.firstChild.textContent = label;
      button.lastChild.textContent = share;
      button.style.setProperty("--w", `${100 * probability}%`);
    });
  }

  // Adds the loss of a passage with some heads off to a table. A new passage or new weights start a new table.
  showCosts(request, weights, bits) {
    const passage = `${weights}: ${request.text}`;
    if (passage !== this.passage) this.costs.clear();
    this.passage = passage;
    this.costs.set(request.off.join(" ") || "none", bits);
    const [first] = this.costs.values();
    const rows = [...this.costs].map(([heads, cost]) => {
      const change = cost === first ? "" : `${cost < first ? "\u2212" : "+"}${Math.abs(cost - first).toFixed(3)}`;
      const cells = [heads, cost.toFixed(3), change].map((cell) => make("td", cell));
      return make("tr", cells);
    });
    this.part("costs").tBodies[0].replaceChildren(...rows);
    this.part("costs").hidden = rows.length < 2;
  }

  lookIfRead() {
    if (this.reading) this.lookInside(); // before the first reading, `update` will ask
  }

  showInside(answer, request) {
    if (request.text !== this.readText) return this.lookInside(); // it has not been read yet
    this.lens = answer.lens;
    this.viewer.showMaps(answer);
    drawText();
  }

  showHead(answer, request) {
    if (request.text !== this.readText) return; // the maps of the new text ask again
    this.part("which").value = request.name;
    this.steps.show(this.state.checkpoints[0].header.config, answer);
  }

  // Appends a likely character to the text that it was predicted for.
  take(i) {
    if (writing || box.value !== this.readText) return;
    box.set(box.value + this.reading.next[i][1]);
    edited();
  }

  // Returns the place in the text of a character of the context window.
  characterOf(i) {
    return i + this.reading.start;
  }

  // Chooses a character of the text, and shows what each layer would predict after it.
  point(character) {
    if (!this.reading) return;
    const { start } = this.reading;
    const i = start === this.nRead ? 0 : Math.min(character, this.nRead - 1) - start; // 0: the start of a line, not typed
    if (i < 0) return;
    this.viewer.select(i);
    if (!this.viewer.weights) return;
    this.diagram.highlight(this.viewer.head, this.viewer.names[this.viewer.head]);
    const rows = this.lens.map((layer, number) => {
      const cells = layer[i].map(([label, , probability]) => make("td", `${label} ${percent(probability)}`));
      return make("tr", [make("th", `layer ${number}`, { scope: "row" }), ...cells]);
    });
    this.part("lens").tBodies[0].replaceChildren(...rows);
    this.lookAtHead();
  }

  // Says how much the chosen character of the text surprised the model.
  describe(character) {
    if (character < this.reading.start) return "The model does not read this character.";
    if (this.reading.start === this.nRead) return "";
    const { labels, query } = this.viewer;
    const bits = this.reading.bits[query];
    const cost =
      bits === null
        ? "the first one is not predicted"
        : `the model gave it ${percent(2 ** -bits)}, a surprise of ${bits.toFixed(2)} bits`;
    return `Outlined: ${labels[query]} at ${query}; ${cost}.`;
  }

  // The surprise of a character of the box, or the weight that the chosen one gives to it; null if there is none.
  valueOf(by, character) {
    if (!this.reading || character < this.reading.start || character >= this.nKnown) return null;
    const i = character - this.reading.start;
    return by === "surprise" ? this.reading.bits[i] : this.viewer.weightOf(i);
  }

  flip(part) {
    if (!this.off.delete(part)) this.off.add(part);
    this.showSwitches();
    act();
  }

  showSwitches() {
    [...this.part("switches").children].forEach((button, i) => {
      const isOff = this.off.has(this.state.parts[i]);
      button.setAttribute("aria-pressed", !isOff);
      const change = this.state.header.measured?.changes[this.state.parts[i]];
      button.title = (isOff ? "silent" : "at work") + (change ? `; ${change[1]}` : "");
    });
  }

  // Chooses another checkpoint of the run.
  choose(number) {
    this.load(this.state.checkpoints[number]);
    if (this.reading) act();
  }

  // Loads other weights of the same model. What the old ones answered stays until the new ones have answered.
  async refresh(checkpoint) {
    this.load(checkpoint);
    await this.compute("read", this.showReading);
    await this.compute("inside", this.showInside); // what its heads have learned is told, also if this is closed
  }

  // Loads a checkpoint, whose weights answer from now on.
  load(checkpoint) {
    const step = checkpoint.step.toLocaleString("en");
    const title = `${this.state.name}, step ${step}`;
    this.part("about").textContent = `${this.state.about}, in ${step} steps of training.`;
    this.part("name").textContent = this.letter ? `${this.letter}: ${title}` : title;
    this.part("checkpoint").ariaValueText = title;
    this.loaded = this.engine.ask("load", { ...checkpoint, header: { ...this.state.header, ...checkpoint.header } });
    this.loaded.catch((error) => this.say(error.message));
  }
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

const WHITE_SPACE = { " ": "a space", "\t": "a tab", "\n": "a line break" };

// Returns the name of white space, another character in quotation marks, or the number of one that cannot be seen.
function nameOf(character) {
  if (character in WHITE_SPACE) return WHITE_SPACE[character];
  const isVisible = !/[\p{C}\p{M}\p{Z}]/u.test(character);
  return isVisible ? `'${character}'` : codePointOf(character);
}
