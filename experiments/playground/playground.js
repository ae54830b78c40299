// The playground: what the models make of the text in the box. Text of models is only ever set as text, never as HTML.

const FOLLOW_MS = 2000; // between questions for new weights
const WRITING_MS = 150; // between updates while a text is written
const INSIDE_MS = 300; // of a pause in typing before maps are computed

const byId = (id) => document.getElementById(id);
const field = (name) => byId("settings").querySelector(`[name=${name}]`);
const exported = byId("exported") && JSON.parse(byId("exported").textContent);
const box = byId("text");
const past = []; // texts for Undo
let models = [];
let pause = 0; // the timer of a pause in typing
let writing = null; // aborts the text that is being written
let beforeWriting = null;

const say = (message) => (byId("message").textContent = message);

// Sends a request; throws an error if the server refuses it or does not answer.
async function ask(path, body, signal) {
  const answer = await fetch(path, body && { method: "POST", body: JSON.stringify(body), signal });
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).error), { isRefusal: true });
  return answer;
}

function explain(error) {
  if (error.name !== "AbortError") say(error.isRefusal ? error.message : "The playground does not answer; is it still running?");
}

// Passes the answer to a request to `show`, or says why there is none.
async function compute(path, body, show) {
  try {
    show(await (await ask(path, body)).json());
  } catch (error) {
    explain(error);
  }
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
  constructor(state, index) {
    this.index = index;
    this.off = new Set();
    this.chosen = null; // a character of the shaded text; null: the last
    this.read = oneAtATime(() => compute("/read", this.request(), (answer) => this.showReading(answer)));
    this.lookInside = oneAtATime(() => compute("/inside", this.request(), (answer) => this.showInside(answer)));
    this.root = byId("model").content.firstElementChild.cloneNode(true);
    byId("models").append(this.root);
    const switches = state.heads.map((name, head) => make("button", name, { onclick: () => this.flip(head) }));
    this.part("switches").append(...switches);
    this.part("checkpoint").onchange = (event) => this.choose(event.target.value);
    this.part("inside").ontoggle = () => this.isOpen() && this.lookInside();
    const text = this.part("surprise");
    text.onpointerover = text.onclick = (event) => {
      const i = this.spans().indexOf(event.target);
      if (i >= 0) this.point(i);
    };
    text.onkeydown = (event) => {
      const [by, last] = [{ ArrowRight: 1, ArrowLeft: -1 }[event.key], this.spans().length - 1];
      if (by) this.point(Math.min(last, Math.max(0, (this.chosen ?? last) + by)));
    };
    this.showSwitches();
    this.show(state);
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  spans() {
    return [...this.part("surprise").querySelectorAll("span")];
  }

  isOpen() {
    return this.part("inside").open && !exported;
  }

  request() {
    return { model: this.index, text: box.value, off: [...this.off] };
  }

  // Shows the state of a run; returns whether its weights are new.
  show(state) {
    const before = this.state;
    this.state = state;
    this.part("name").textContent = `${state.name}, step ${state.step.toLocaleString("en")}`;
    this.part("about").textContent = state.about;
    this.part("checkpoint").replaceChildren(...state.checkpoints.map((name) => make("option", name, { value: name })));
    this.part("checkpoint").value = state.chosen;
    drawLosses(this.part("losses"), state.train_loss, state.val_loss);
    return before && (before.step !== state.step || before.chosen !== state.chosen);
  }

  showReading(answer) {
    const bars = answer.next.map(([label, character, probability]) => {
      const button = make("button", "", { disabled: !character || Boolean(exported), onclick: () => take(character) });
      button.append(make("span", label), make("span", probability.toFixed(3)));
      button.style.setProperty("--w", `${100 * probability}%`);
      button.setAttribute("aria-label", `append ${label}, probability ${probability.toFixed(3)}`);
      return button;
    });
    this.part("next").replaceChildren(...bars);
    const spans = answer.shown.flatMap((label, i) => {
      const bits = answer.bits[i];
      const span = make("span", label, { title: bits === null ? "the first: not predicted" : `${bits.toFixed(2)} bits` });
      span.style.setProperty("--w", `${Math.min(90, 9 * (bits ?? 0))}%`);
      return label === "⏎" ? [span, make("br")] : [span];
    });
    this.part("surprise").replaceChildren(...spans);
    const n = answer.shown.length - 1;
    const bits = answer.nats / Math.LN2;
    const before = answer.start ? ` (the context window starts at character ${answer.start})` : "";
    this.part("totals").textContent = n
      ? `${n} characters cost ${answer.nats.toFixed(4)} nats, ${bits.toFixed(4)} bits: ${(bits / n).toFixed(3)} bits each${before}`
      : "The first character is not predicted; type a second one.";
    this.chosen = null;
  }

  showInside(answer) {
    this.lens = answer.lens;
    this.maps = attentionViewer(this.part("viewer"), answer.viewer, (query) => this.point(query, false));
    this.point(this.chosen ?? this.lens[0].length - 1);
  }

  // Chooses a character of the shaded text, and shows what each layer would predict after it.
  point(i, inMaps = true) {
    this.chosen = i;
    const spans = this.spans();
    spans.forEach((span, j) => span.classList.toggle("chosen", i === j));
    if (spans[i]) this.part("pointed").textContent = `${spans[i].textContent} at ${i}: ${spans[i].title}`;
    if (!this.lens || i >= this.lens[0].length) return;
    const rows = this.lens.map((layer, number) => {
      const row = make("tr", "");
      const cells = layer[i].map(([label, , probability]) => make("td", `${label} ${probability.toFixed(3)}`));
      row.append(make("th", `layer ${number}`, { scope: "row" }), ...cells);
      return row;
    });
    this.part("lens").tBodies[0].replaceChildren(...rows);
    if (inMaps) this.maps.select(i, false);
  }

  flip(head) {
    if (!this.off.delete(head)) this.off.add(head);
    this.showSwitches();
    update();
  }

  showSwitches() {
    [...this.part("switches").children].forEach((button, i) => {
      button.setAttribute("aria-pressed", !this.off.has(i));
      button.title = this.off.has(i) ? "silent" : "at work";
    });
  }

  choose(checkpoint) {
    compute("/choose", { model: this.index, checkpoint }, (state) => {
      this.show(state);
      update();
    });
  }
}

// Draws curves of [step, loss] with the colours of the page.
function drawLosses(chart, ...curves) {
  const points = curves.flat();
  chart.toggleAttribute("hidden", points.length < 2);
  if (points.length < 2) return;
  const last = Math.max(...points.map(([step]) => step));
  const [low, high] = [Math.min(...points.map(([, loss]) => loss)), Math.max(...points.map(([, loss]) => loss))];
  const place = ([step, loss]) => `${30 + (265 * step) / last},${5 + (65 * (high - loss)) / (high - low || 1)}`;
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
  add("text", { x: 0, y: 10 }, high.toFixed(2));
  add("text", { x: 0, y: 72 }, low.toFixed(2));
  add("text", { x: 295, y: 81, "text-anchor": "end" }, `step ${last}: training blue, validation orange`);
}

// Asks every model about the text in the box; the maps follow when typing pauses.
function update() {
  say("");
  models.forEach((model) => model.read());
  clearTimeout(pause);
  pause = setTimeout(() => models.forEach((model) => model.isOpen() && model.lookInside()), INSIDE_MS);
  byId("undo").disabled = past.length === 0;
}

// Returns the settings by name; an empty number is null.
function settings() {
  const inputs = [...byId("settings").querySelectorAll("input")];
  return Object.fromEntries(
    inputs.map((input) => [input.name, input.type === "number" ? (input.value === "" ? null : Number(input.value)) : input.value]),
  );
}

// Appends a character to the text; Undo takes it away again.
function take(character) {
  past.push(box.value);
  box.value += character;
  update();
}

async function write() {
  if (writing) return;
  if (!byId("settings").checkValidity()) {
    byId("details").open = true;
    byId("settings").reportValidity();
    return;
  }
  writing = new AbortController();
  beforeWriting = box.value;
  past.push(box.value);
  busy(true);
  say("");
  try {
    const answer = await ask("/write", { ...models[byId("writer").value].request(), ...settings() }, writing.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let updated_ms = 0;
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      box.value += piece.value;
      box.scrollTop = box.scrollHeight;
      if (performance.now() - updated_ms < WRITING_MS) continue;
      update();
      updated_ms = performance.now();
    }
    update();
  } catch (error) {
    update();
    explain(error);
  }
  writing = null;
  busy(false);
}

function busy(isBusy) {
  for (const id of ["write", "again", "undo"]) byId(id).disabled = isBusy;
  byId("stop").disabled = !isBusy;
  box.readOnly = isBusy;
}

function stop() {
  writing?.abort();
}

function again() {
  box.value = beforeWriting;
  field("seed").value = Number(field("seed").value) + 1;
  write();
}

function undo() {
  box.value = past.pop() ?? box.value;
  update();
}

// Shows new weights of a run in progress.
async function follow() {
  try {
    const { models: states } = await (await ask("/state")).json();
    if (states.filter((state, i) => models[i].show(state)).length) update();
  } catch (error) {
    explain(error);
  }
  setTimeout(follow, FOLLOW_MS);
}

function showExported() {
  models.forEach((model, i) => {
    model.showReading(exported.shown[i]);
    model.part("inside").open = true;
    model.showInside(exported.shown[i]);
  });
}

async function start() {
  const { models: states } = exported ?? (await (await ask("/state")).json());
  models = states.map((state, i) => new Model(state, i));
  byId("models").classList.toggle("two", models.length > 1);
  byId("with").hidden = models.length < 2;
  byId("writer").append(...models.map((_, i) => make("option", "AB"[i], { value: i })));
  if (exported) return showExported();
  box.oninput = update;
  byId("settings").onsubmit = (event) => {
    event.preventDefault();
    write();
  };
  document.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
    if (event.key === "Escape") stop();
  };
  for (const [id, work] of Object.entries({ write, stop, again, undo })) byId(id).onclick = () => work();
  update();
  setTimeout(follow, FOLLOW_MS);
}

start();
