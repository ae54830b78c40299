// The playground: what the models make of the text in the box. Text of models is only ever set as text, never as HTML.

const byId = (id) => document.getElementById(id);
const exported = byId("exported") && JSON.parse(byId("exported").textContent);
const page = Math.random().toString(36).slice(2);
const box = byId("text");
const SETTINGS = ["length", "temperature", "top_k", "top_p", "min_p", "seed"];
const [FOLLOW_MS, INSIDE_MS] = [2000, 300]; // between questions for new weights; of a pause before maps are computed
const past = []; // texts for Undo
let [models, number, pause] = [[], 0, 0]; // number: of the newest request. pause: the timer of one in typing
let [writing, beforeWriting] = [null, null]; // writing: what aborts the text being written

const say = (message) => (byId("message").textContent = message);

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).error), { code: answer.status });
  return answer;
}

// Returns an answer, or null if there is none, or a newer request has replaced this one.
async function compute(path, body) {
  try {
    const answer = await (await ask(path, { page, ...body })).json();
    return answer.replaced ? null : answer;
  } catch (error) {
    say(error.code ? error.message : "The playground does not answer; is it still running?");
    return null;
  }
}

function make(tag, text, attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  return element;
}

class Model {
  constructor(state, index) {
    this.index = index;
    this.off = new Set();
    this.newest = 0; // number of the newest request that was answered
    this.chosen = null; // a character of the shaded text; null: the last
    this.root = byId("model").content.firstElementChild.cloneNode(true);
    byId("models").append(this.root);
    state.heads.forEach((name, head) => {
      this.part("switches").append(make("button", name, { onclick: () => this.flip(head) }));
    });
    this.part("checkpoint").addEventListener("change", (event) => this.choose(event.target.value));
    this.part("inside").addEventListener("toggle", () => this.lookInside());
    const text = this.part("surprise");
    text.onpointerover = text.onclick = (event) => {
      const i = this.spans().indexOf(event.target);
      if (i >= 0) this.point(i);
    };
    text.onkeydown = (event) => {
      const [by, last] = [{ ArrowRight: 1, ArrowLeft: -1 }[event.key], this.spans().length - 1];
      if (by) this.point(Math.min(last, Math.max(0, (this.chosen ?? last) + by)));
    };
    this.show(state);
  }

  part(name) {
    return this.root.querySelector(`.${name}`);
  }

  spans() {
    return [...this.part("surprise").querySelectorAll("span")];
  }

  show(state) {
    this.version = state.version;
    this.part("name").textContent = `${state.name}, step ${state.step.toLocaleString("en")}`;
    this.part("about").textContent = state.about;
    const options = state.checkpoints.map((name) => make("option", name, { value: name }));
    this.part("checkpoint").replaceChildren(...options);
    this.part("checkpoint").value = state.chosen;
    this.drawLosses(state.train_loss, state.val_loss);
  }

  drawLosses(...losses) {
    const all = losses.flat();
    this.part("losses").toggleAttribute("hidden", all.length < 2);
    if (all.length < 2) return;
    const last = Math.max(...all.map(([step]) => step));
    const [low, high] = [Math.min(...all.map(([, loss]) => loss)), Math.max(...all.map(([, loss]) => loss))];
    const place = ([step, loss]) => `${30 + (265 * step) / last},${5 + (65 * (high - loss)) / (high - low || 1)}`;
    const svg = (tag, attributes, text = "") => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.textContent = text;
      return element;
    };
    const twice = (points) => points.concat(points.slice(-1)); // the last one, so that a curve of one point is a dot
    const line = (points, i) => svg("polyline", { points: twice(points).map(place).join(" "), stroke: `var(--series-${i})` });
    this.part("losses").replaceChildren(
      ...losses.map(line),
      svg("text", { x: 0, y: 10 }, high.toFixed(2)),
      svg("text", { x: 0, y: 72 }, low.toFixed(2)),
      svg("text", { x: 295, y: 81, "text-anchor": "end" }, `step ${last}: training blue, validation orange`),
    );
  }

  request() {
    return { model: this.index, text: box.value, off: [...this.off], number };
  }

  async read() {
    const request = this.request();
    const answer = await compute("/read", request);
    if (!answer || request.number < this.newest) return; // answers may overtake each other
    this.newest = request.number;
    this.showReading(answer);
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
      return label === "⏎" ? [span, document.createElement("br")] : [span];
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

  async lookInside() {
    if (!this.part("inside").open || exported) return;
    const answer = await compute("/inside", this.request());
    if (answer) this.showInside(answer);
  }

  showInside(answer) {
    this.lens = answer.lens;
    this.part("maps").innerHTML = answer.viewer; // made by the server, which escapes the text
    this.maps = attentionViewer(this.part("viewer"), (query) => this.point(query, false));
    this.point(this.chosen ?? this.lens[0].length - 1);
  }

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
    measure([this]);
  }

  showSwitches() {
    [...this.part("switches").children].forEach((button, i) => {
      button.setAttribute("aria-pressed", !this.off.has(i));
      button.title = this.off.has(i) ? "silent" : "at work";
    });
  }

  async choose(checkpoint) {
    const state = await compute("/choose", { model: this.index, checkpoint });
    if (!state) return;
    this.show(state);
    update();
    measure([this]);
  }

  async measure(text) {
    const answer = await compute("/score", { ...this.request(), text });
    if (!answer) return;
    const silent = [...this.off].map((head) => this.part("switches").children[head].textContent).join(" ") || "none";
    const change = this.firstLoss === undefined ? "" : (answer.loss - this.firstLoss).toFixed(4);
    this.firstLoss ??= answer.loss;
    const row = byId("measured").tBodies[0].insertRow();
    const cells = [this.part("name").textContent, silent, answer.loss.toFixed(4), change];
    row.append(...cells.map((cell) => make("td", cell)));
  }
}

// Asks every model about the text in the box; the maps follow when typing pauses.
function update() {
  number += 1;
  say("");
  models.forEach((model) => model.read());
  clearTimeout(pause);
  pause = setTimeout(() => models.forEach((model) => model.lookInside()), INSIDE_MS);
  byId("undo").disabled = past.length === 0;
  byId("link").hash = encodeURIComponent(JSON.stringify({ text: box.value, ...settings() }));
}

function measure(changed = models) {
  const text = byId("passage").value;
  if (byId("changes").open && text) changed.forEach((model) => model.measure(text));
}

// Appends a character to the text; Undo takes it away again.
function take(character) {
  past.push(box.value);
  box.value += character;
  update();
}

function settings() {
  const values = SETTINGS.map((id) => [id, byId(id).value === "" ? undefined : Number(byId(id).value)]);
  return { ...Object.fromEntries(values), stop: byId("stop_text").value };
}

async function write() {
  if (writing) return;
  const controller = (writing = new AbortController());
  beforeWriting = box.value;
  past.push(box.value);
  busy(true);
  say("");
  try {
    const model = models[byId("writer").value];
    const body = { model: model.index, text: box.value, off: [...model.off], ...settings() };
    const answer = await ask("/write", body, controller.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let shown = 0; ; ) {
      const { value, done } = await reader.read();
      if (done) break;
      box.value += value;
      box.scrollTop = box.scrollHeight;
      if (performance.now() - shown > 150) {
        update();
        shown = performance.now();
      }
    }
    update();
  } catch (error) {
    update();
    if (error.name !== "AbortError") say(error.code ? error.message : "The playground stopped answering.");
  }
  writing = null;
  busy(false);
}

function busy(isBusy) {
  for (const id of ["write", "again", "undo"]) byId(id).disabled = isBusy;
  byId("stop").disabled = !isBusy;
  box.readOnly = isBusy;
}

function again() {
  box.value = beforeWriting;
  byId("seed").value = Number(byId("seed").value) + 1;
  write();
}

function undo() {
  box.value = past.pop() ?? box.value;
  update();
}

// Shows new weights of a run in progress.
async function follow() {
  try {
    const { models: states, error } = await (await fetch("/state")).json();
    if (error) say(error);
    states?.forEach((state, i) => {
      const isNew = state.version !== models[i].version;
      models[i].show(state);
      if (isNew) update();
    });
  } catch {
    say("The playground does not answer; is it still running?");
  }
  setTimeout(follow, FOLLOW_MS);
}

async function start() {
  const { models: states } = exported ?? (await (await fetch("/state")).json());
  models = states.map((state, i) => new Model(state, i));
  byId("models").classList.toggle("two", models.length > 1);
  byId("with").hidden = models.length < 2;
  byId("writer").append(...models.map((_, i) => make("option", "AB"[i], { value: i })));
  models.forEach((model) => model.showSwitches());
  if (exported) {
    document.body.classList.add("exported");
    models.forEach((model, i) => {
      model.showReading(exported.shown[i]);
      model.part("inside").open = true;
      model.showInside(exported.shown[i]);
    });
    return;
  }
  try {
    const linked = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}");
    box.value = String(linked.text ?? "");
    for (const id of SETTINGS) if (typeof linked[id] === "number") byId(id).value = linked[id];
    byId("stop_text").value = String(linked.stop ?? "");
  } catch {
    say("The link is damaged, so the text starts empty.");
  }
  box.addEventListener("input", update);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
    if (event.key === "Escape" && writing) writing.abort();
  });
  const [copy, stop] = [() => navigator.clipboard.writeText(box.value), () => writing?.abort()];
  for (const [id, work] of Object.entries({ write, stop, again, undo, copy, measure: () => measure() })) byId(id).onclick = work;
  update();
  setTimeout(follow, FOLLOW_MS);
}

start();
