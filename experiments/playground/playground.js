// The playground: what the models make of the text in the box. Text of models is only ever set as text, never as HTML.

const FOLLOW_MS = 2000; // between questions for new weights
const WRITING_MS = 150; // between updates while a text is written
const INSIDE_MS = 300; // of a pause in typing before maps are computed, or a text is continued
const AHEAD = 60; // characters of a continuation as one types
const GONE = "The playground does not answer; is it still running?";

const byId = (id) => document.getElementById(id);
const field = (name) => byId("settings").querySelector(`[name=${name}]`);
const exported = byId("exported") && JSON.parse(byId("exported").textContent);
const box = byId("text");
const past = []; // texts for Undo
let models = [];
let shown = 0; // the model that shades the text
let kept = -1; // the character that stays chosen, by its place in the text; -1: none
let pause = 0; // the timer of a pause in typing
let writing = null; // aborts the text that is being written
let looking = null; // aborts the text that is continued as one types
let beforeWriting = null;

const say = (message) => (byId("message").textContent = message);

// Sends a request; throws an error if the server refuses it or does not answer.
async function ask(path, body, signal) {
  const answer = await fetch(path, body && { method: "POST", body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const { error, position } = await answer.json();
    throw Object.assign(new Error(error), { isRefusal: true, position });
  }
  return answer;
}

function explain(error, tell = say) {
  if (error.name !== "AbortError") tell(error.isRefusal ? error.message : GONE);
}

// Returns a function that runs `work`, and runs it once more if it is called meanwhile: answers come in order.
function oneAtATime(work) {
  let running = false;
  let again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      await work();
    }
    running = false;
  };
}

class Model {
  constructor(state, index, letter) {
    Object.assign(this, { index, letter, off: new Set(), reading: null, costs: new Map(), bars: [] });
    this.read = oneAtATime(() => this.compute("read", this.showReading));
    this.lookInside = oneAtATime(() => this.compute("inside", this.showInside));
    this.root = byId("model").content.firstElementChild.cloneNode(true);
    byId("models").append(this.root);
    this.viewer = new Viewer(this.part("viewer"), (query) => point(this.characterOf(query), true));
    const switches = state.heads.map((name, head) => make("button", name, { onclick: () => this.flip(head) }));
    this.part("switches").append(...switches);
    this.part("checkpoint").onchange = (event) => this.choose(event.target.value);
    this.part("inside").open = Boolean(exported) || innerWidth >= 960;
    this.part("inside").ontoggle = () => this.isOpen() && this.lookInside();
    answerToPointer(this.part("losses"));
    this.showSwitches();
    this.show(state);
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  isOpen() {
    return this.part("inside").open && !exported;
  }

  say(message) {
    this.part("message").textContent = message && this.letter ? `Model ${this.letter}: ${message}` : message;
  }

  request() {
    return { model: this.index, text: box.value, off: [...this.off] };
  }

  // Passes the answer and what was asked to `show`, or says why there is none.
  async compute(path, show, request = this.request()) {
    const weights = `${this.state.chosen}, step ${this.state.step}`;
    try {
      show.call(this, await (await ask(path, request)).json(), request, weights);
    } catch (error) {
      explain(error, (message) => this.say(message));
      if (this.index === shown && request.text === box.value) sheet.spans[error.position - sheet.first]?.classList.add("unknown");
    }
  }

  // Shows the state of a run; returns whether its weights are new.
  show(state) {
    const before = this.state;
    this.state = state;
    const letter = this.letter && `${this.letter}: `;
    this.part("name").textContent = `${letter}${state.name}, step ${state.step.toLocaleString("en")}`;
    this.part("about").textContent = state.about;
    if (String(before?.checkpoints) !== String(state.checkpoints)) {
      this.part("checkpoint").replaceChildren(...state.checkpoints.map((name) => make("option", name, { value: name })));
    }
    this.part("checkpoint").value = state.chosen;
    drawLosses(this.part("losses"), state.train_loss, state.val_loss);
    return before && (before.step !== state.step || before.chosen !== state.chosen);
  }

  showReading(answer, request, weights) {
    Object.assign(this, { reading: answer, readText: request.text, ends: [] });
    let end = 0; // of each character in the ids of the text: a character may have several bytes
    for (const c of request.text) this.ends.push((end += this.state.unit === "byte" ? new TextEncoder().encode(c).length : 1));
    this.root.classList.toggle("stale", request.text !== box.value);
    this.say(request.text || exported ? "" : "Without a text, the model begins a line.");
    while (this.bars.length < answer.next.length) {
      const i = this.bars.length;
      this.bars.push(make("button", "", { onclick: () => this.take(i) }, [make("span", ""), make("span", "")]));
    }
    this.bars.length = answer.next.length;
    if (this.part("next").children.length !== this.bars.length) this.part("next").replaceChildren(...this.bars);
    answer.next.forEach(([label, character, probability], i) => {
      const [button, share] = [this.bars[i], percent(probability)];
      [...button.children].forEach((child, j) => (child.textContent = [label, share][j]));
      button.style.setProperty("--w", `${100 * probability}%`);
      button.setAttribute("aria-label", `append ${label}, ${share}`);
      button.setAttribute("aria-disabled", !character || Boolean(exported));
    });
    this.viewer.showText(answer);
    const n = answer.shown.length - 1;
    const bits = answer.nats / Math.LN2;
    const before = answer.start ? ` (the context window starts at character ${answer.start})` : "";
    this.part("totals").textContent = n
      ? `${n} characters cost ${answer.nats.toFixed(2)} nats, ${bits.toFixed(2)} bits: ${(bits / n).toFixed(3)} bits each${before}`
      : "The first character is not predicted; type a second one.";
    this.showCosts(request, weights, n ? bits / n : 0);
    drawText();
    this.showLater?.();
  }

  // Adds the cost of a passage with some heads off to a table, which another passage or other weights begin anew.
  showCosts(request, weights, bits) {
    const passage = `${weights}: ${request.text}`;
    if (passage !== this.passage) this.costs.clear();
    this.passage = passage;
    this.costs.set(request.off.map((head) => this.state.heads[head]).join(" ") || "none", bits);
    const [first] = this.costs.values();
    const rows = [...this.costs].map(([heads, cost]) =>
      make("tr", "", {}, [heads, cost.toFixed(3), cost === first ? "" : `${cost < first ? "\u2212" : "+"}${Math.abs(cost - first).toFixed(3)}`].map((cell) => make("td", cell))),
    );
    this.part("costs").tBodies[0].replaceChildren(...rows);
    this.part("costs").hidden = rows.length < 2;
  }

  showInside(answer, request) {
    const isEarly = request.text !== this.readText; // the answer to its reading is yet to come
    this.showLater = isEarly ? () => this.showInside(answer, request) : null;
    if (isEarly) return;
    this.lens = answer.lens;
    this.viewer.showMaps(answer.viewer);
    point(chosen());
  }

  // Appends a likely character to the text that it was predicted for.
  take(i) {
    const character = this.reading.next[i][1];
    if (exported || !character || box.value !== this.readText) return;
    past.push(box.value);
    box.value += character;
    act();
  }

  characterOf(i) {
    return this.ends.findIndex((end) => end > i + this.reading.start);
  }

  // Chooses a character of the text, and shows what each layer would predict after it.
  point(character) {
    const i = this.reading ? this.ends[Math.min(character, this.ends.length - 1)] - 1 - this.reading.start : -1;
    if (!(i >= 0)) return;
    this.viewer.select(i);
    if (!this.lens || !this.viewer.weights || i >= this.lens[0].length) return;
    const rows = this.lens.map((layer, number) => {
      const cells = layer[i].map(([label, , probability]) => make("td", `${label} ${percent(probability)}`));
      return make("tr", "", {}, [make("th", `layer ${number}`, { scope: "row" }), ...cells]);
    });
    this.part("lens").tBodies[0].replaceChildren(...rows);
  }

  // The surprise of a character of the box, or the weight that the chosen one gives to it; null if there is none.
  valueOf(by, character) {
    if (!this.reading || character >= this.nKnown) return null;
    const values = [];
    for (let id = this.ends[character - 1] ?? 0; id < this.ends[character]; id++) {
      values.push(by === "surprise" ? this.reading.bits[id - this.reading.start] : this.viewer.weightOf(id - this.reading.start));
    }
    return values.some((value) => value === null || value === undefined) ? null : values.reduce((a, b) => a + b, 0);
  }

  flip(head) {
    if (!this.off.delete(head)) this.off.add(head);
    this.showSwitches();
    act();
  }

  showSwitches() {
    [...this.part("switches").children].forEach((button, i) => {
      button.setAttribute("aria-pressed", !this.off.has(i));
      button.title = this.off.has(i) ? "silent" : "at work";
    });
  }

  choose(checkpoint) {
    this.compute("choose", (state) => this.show(state) && act(), { model: this.index, checkpoint });
  }
}

// Draws curves of [step, loss] with the colours of the page.
function drawLosses(chart, ...curves) {
  const points = curves.flat();
  chart.toggleAttribute("hidden", points.length < 2);
  if (points.length < 2) return;
  const last = Math.max(...points.map(([step]) => step));
  const [low, high] = [Math.min(...points.map(([, loss]) => loss)), Math.max(...points.map(([, loss]) => loss))];
  const place = ([step, loss]) => [30 + (265 * step) / last, 5 + (65 * (high - loss)) / (high - low || 1)];
  const add = (tag, attributes, text = "") => {
    const element = chart.appendChild(document.createElementNS(chart.namespaceURI, tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
  };
  chart.replaceChildren();
  curves.forEach((curve, i) => {
    const twice = curve.concat(curve.slice(-1)); // the last one, so that a curve of one point is a dot
    add("polyline", { points: twice.map(place).join(" "), stroke: `var(--series-${i})` });
  });
  const spoken = (i, [step, loss]) => `${["training", "validation"][i]}, step ${step.toLocaleString("en")}: ${loss.toFixed(4)}`;
  chart.dataset.points = JSON.stringify(curves.flatMap((curve, i) => curve.map((each) => [...place(each), spoken(i, each)])));
  add("text", { x: 0, y: 10 }, high.toFixed(2));
  add("text", { x: 0, y: 72 }, low.toFixed(2));
  add("text", { x: 295, y: 81, "text-anchor": "end" }, `step ${last}: training blue, validation orange`);
}

const sheet = new ShadedText(byId("writing"), (by, i) => models[shown].valueOf(by, i + sheet.first), () => {});

// Draws the text under the box; only the characters in the window of the model have shades.
function drawText() {
  const { reading, readText, ends } = models[shown];
  if (!reading) return;
  const [characters, known] = [[...box.value], [...readText]];
  const differs = known.findIndex((c, i) => c !== characters[i]); // what is typed since has no shade yet
  models.forEach((model) => (model.nKnown = differs < 0 ? known.length : differs));
  sheet.first = Math.max(0, ends.findIndex((end) => end > reading.start));
  const window = characters.slice(sheet.first);
  sheet.show(window, window);
  sheet.element.prepend(characters.slice(0, sheet.first).join(""));
  point(chosen());
}

// The character that the user has chosen or, without one, the middle of a line.
function chosen() {
  const { reading, ends } = models[shown];
  return kept >= 0 && kept < ends.length ? kept : models[shown].characterOf(middleOfLine(reading.text));
}

// Chooses a character of the text in all models. keeps: until another one is chosen.
function point(character, keeps = false) {
  if (keeps) kept = character;
  models.forEach((model) => model.point(character));
  sheet.shade(character - sheet.first);
  byId("writing").querySelector(".pointed").textContent = models[shown].viewer.part("pointed").textContent;
}

// Asks every model about the text in the box; the maps follow when typing pauses.
function update() {
  models.forEach((model) => model.root.classList.add("stale")); // until the answer is there
  drawText();
  models.forEach((model) => model.read());
  clearTimeout(pause);
  pause = setTimeout(() => {
    models.forEach((model) => model.isOpen() && model.lookInside());
    if (byId("along").checked && !writing) lookAhead();
  }, INSIDE_MS);
  byId("undo").disabled = past.length === 0 || Boolean(writing);
}

// Answers an action of the user: messages of the one before go.
function act() {
  say("");
  models.forEach((model) => model.say(""));
  byId("again").disabled = true;
  looking?.abort();
  byId("ahead").textContent = "";
  update();
}

// Shows how the model would continue, without writing it: the beginning of what Continue writes.
async function lookAhead() {
  if (!byId("settings").checkValidity()) return;
  const text = box.value;
  looking = new AbortController();
  try {
    const values = settings();
    const request = { ...models[byId("writer").value].request(), ...values, length: Math.min(values.length, AHEAD) };
    const answer = await (await ask("write", request, looking.signal)).text();
    if (box.value === text && byId("along").checked) byId("ahead").textContent = answer;
  } catch (error) {
    explain(error);
  }
}

// Returns the settings by name; an empty number is null.
function settings() {
  const inputs = [...byId("settings").querySelectorAll("input")];
  return Object.fromEntries(
    inputs.map((input) => [input.name, input.type === "number" ? (input.value === "" ? null : Number(input.value)) : input.value]),
  );
}

async function write() {
  if (writing) return;
  if (!byId("settings").checkValidity()) {
    byId("details").open = true;
    byId("settings").reportValidity();
    return;
  }
  writing = new AbortController();
  const writer = models[byId("writer").value];
  beforeWriting = box.value;
  past.push(box.value);
  busy(true);
  act();
  try {
    const answer = await ask("write", { ...writer.request(), ...settings() }, writing.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let updated_ms = 0;
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      box.value += piece.value;
      box.parentElement.scrollTop = box.parentElement.scrollHeight;
      if (performance.now() - updated_ms < WRITING_MS) continue;
      update();
      updated_ms = performance.now();
    }
    update();
  } catch (error) {
    update();
    explain(error, (message) => say(writer.letter ? `Model ${writer.letter}: ${message}` : message));
  }
  writing = null;
  busy(false);
}

function busy(isBusy) {
  for (const id of ["write", "again", "undo"]) byId(id).disabled = isBusy;
  byId("stop").disabled = !isBusy;
  box.readOnly = isBusy;
}

const stop = () => writing?.abort();

function again() {
  box.value = beforeWriting;
  field("seed").value = Number(field("seed").value) + 1;
  write();
}

function undo() {
  box.value = past.pop() ?? box.value;
  act();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(box.value);
  } catch {
    box.select(); // where a page may not write to the clipboard
    document.execCommand("copy");
  }
  say(`Copied ${[...box.value].length} characters.`);
}

// Shows new weights of a run in progress.
async function follow() {
  try {
    const { models: states } = await (await ask("state")).json();
    if (states.filter((state, i) => models[i].show(state)).length) update();
    if (byId("message").textContent === GONE) say("");
  } catch (error) {
    explain(error);
  }
  setTimeout(follow, FOLLOW_MS);
}

function showExported() {
  models.forEach((model, i) => {
    model.showReading(exported.shown[i], { text: box.value, off: [] }, "");
    model.showInside(exported.shown[i], { text: box.value });
  });
}

// Chooses the character under the pointer, which the box covers, or the one before the caret.
function pointAt(event) {
  const under = document.elementsFromPoint(event.clientX, event.clientY).find((element) => sheet.spans.includes(element));
  if (under) point(sheet.spans.indexOf(under) + sheet.first);
}

const pointAtCaret = () => point(Math.max(0, [...box.value.slice(0, box.selectionStart)].length - 1), true);

async function start() {
  const { models: states } = exported ?? (await (await ask("state")).json());
  const letters = states.length > 1 ? ["A", "B"] : [""];
  models = states.map((state, i) => new Model(state, i, letters[i]));
  const isPair = models.length > 1;
  byId("models").classList.toggle("two", isPair);
  byId("letters").hidden = byId("with").hidden = !isPair;
  byId("writer").append(...models.map((_, i) => make("option", "AB"[i], { value: i })));
  if (isPair) {
    chooseLetter(byId("letters"), byId("models"), (i) => {
      shown = i;
      drawText();
    });
    const [a, b] = states.map(({ measured_on: [text, context] }) => `${text} with context length ${context}`);
    if (a !== b) byId("warning").textContent = `Model A was trained on ${a}, model B on ${b}: do not compare their losses or surprise.`;
  }
  box.value = states[0].opening;
  box.onpointermove = pointAt;
  box.onpointerleave = drawText;
  box.onclick = pointAtCaret;
  box.onkeyup = (event) => event.key.startsWith("Arrow") && pointAtCaret();
  if (exported) return showExported();
  box.oninput = act;
  byId("settings").onsubmit = (event) => {
    event.preventDefault();
    write();
  };
  byId("along").onchange = act;
  document.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
    if (event.key === "Escape") stop();
  };
  for (const [id, work] of Object.entries({ write, stop, again, undo, copy })) byId(id).onclick = () => work();
  box.focus();
  update();
  setTimeout(follow, FOLLOW_MS);
}

start();
