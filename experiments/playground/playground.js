// The playground: what the models make of the text in the box. Text of models is only ever set as text, never as HTML.

const WRITING_MS = 150; // between updates while a text is written
const INSIDE_MS = 300; // of a pause in typing before maps are computed, or a text is continued
const AHEAD = 60; // characters of a preview while the user types

const source = document.documentElement.cloneNode(true); // before the page changes; see `pageOf`
const byId = (id) => document.getElementById(id);
const training = JSON.parse(byId("training").textContent); // what models are trained with here
const statesOfThisPage = JSON.parse(byId("models-of-this-page").textContent);
statesOfThisPage.forEach(({ header, characters }) => Object.assign(header, vocabularyOf(characters)));
const opening = inBox(statesOfThisPage[0].opening, statesOfThisPage[0].characters);
const box = new Box(byId("text"), opening, () => edited());
const sheet = new Sheet(byId("writing"), (by, character) => models[shown]?.valueOf(by, character));
let models = [];
let shown = 0; // the model that shades the text
let pointed = -1; // the character under the pointer, by its place in the text; -1: none
let kept = -1; // the character that stays chosen, by its place in the text; -1: none
let pause = 0; // the timer of a pause in typing
let writing = null; // the model that writes
let continued = ""; // the text that was continued last

function say(message, element = byId("message"), isWarning = true) {
  if (element.textContent !== message) element.textContent = message; // a screen reader speaks it at each change
  element.classList.toggle("faint", !isWarning);
}

// Says what was done with n characters.
function sayDone(verb, n, how = "") {
  say(`${verb} ${n} character${n === 1 ? "" : "s"}${how}.`, byId("message"), false);
}

// A button that cannot be pressed now keeps the focus of the keyboard.
function enable(id, can) {
  byId(id).setAttribute("aria-disabled", !can);
}

// Lets buttons work. works: what each does, by its id.
function makeButtons(works) {
  for (const [id, work] of Object.entries(works)) {
    byId(id).onclick = () => {
      if (byId(id).getAttribute("aria-disabled") !== "true") work();
    };
  }
}

// Returns a function that runs `work`, and runs it once more if it is called meanwhile: answers come in order.
function oneAtATime(work) {
  let isRunning = false;
  let isDue = false;
  return async () => {
    isDue = true;
    if (isRunning) return;
    isRunning = true;
    try {
      while (isDue) {
        isDue = false;
        await work();
      }
    } finally {
      isRunning = false;
    }
  };
}

// Chooses a character of the text in all models. keeps: until another one is chosen.
function point(character, keeps = false) {
  if (keeps) kept = character;
  models.forEach((model) => model.point(character));
  sheet.shade(character);
  const live = keeps ? "polite" : "off"; // a screen reader speaks of what the user chooses only
  document.querySelectorAll("#pointed, .looking").forEach((element) => element.setAttribute("aria-live", live));
  byId("pointed").textContent = models[shown].describe(character);
}

// Draws the text under the box, and chooses the pointer's character, the kept one or, without one, the middle of a line.
function drawText() {
  const model = models[shown];
  const characters = [...box.value];
  if (!model.reading) return sheet.show(characters, characters.length, []);
  const known = [...model.readText];
  const differs = known.findIndex((c, i) => c !== characters[i]); // what was typed since then has no shade yet
  model.nKnown = differs < 0 ? known.length : differs;
  const { unknown, text } = model.reading;
  const first = Math.max(Math.min(model.characterOf(0), ...unknown), characters.length - model.state.context);
  const marked = unknown.filter((place) => first <= place && place < model.nKnown);
  sheet.show(characters, first, marked);
  const chosen = [pointed, kept].find((each) => each >= model.characterOf(0) && each < model.nRead);
  point(chosen ?? model.characterOf(middleOfLine(text)));
}

// Asks every model about the text in the box; the maps follow when typing pauses.
function update() {
  pointed = -1;
  models.forEach((model) => model.root.classList.add("stale")); // until the answer is there
  drawText();
  models.forEach((model) => model.read());
  clearTimeout(pause);
  pause = setTimeout(() => {
    models.forEach((model) => model.lookInside());
    lookAhead();
  }, INSIDE_MS);
  enable("undo", box.canStep(-1));
  enable("redo", box.canStep(1));
}

// Handles an action of the user, and removes the message of the previous one.
function act() {
  say("");
  enable("again", false);
  byId("ahead").textContent = "";
  update();
}

// Handles a change of the text by the user.
function edited() {
  act();
  sheet.reveal(box.field.selectionEnd);
}

const writer = () => models[byId("writer").value];

// Returns the settings by name; an empty number is null.
function settings() {
  const inputs = [...byId("settings").querySelectorAll("input")];
  const numberOf = (value) => (value === "" ? null : Number(value));
  return Object.fromEntries(inputs.map(({ name, type, value }) => [name, type === "number" ? numberOf(value) : value]));
}

// Shows how the model would continue, without writing it: the beginning of what Continue writes.
const lookAhead = oneAtATime(async () => {
  if (!byId("along").checked || writing || !byId("settings").checkValidity()) return;
  const request = { ...writer().request(), ...settings() };
  request.length = Math.min(request.length, AHEAD);
  try {
    const ahead = await writer().ask("write", request);
    if (box.value === request.text && byId("along").checked && !writing) byId("ahead").textContent = ahead;
  } catch (error) {
    if (error !== ENDED) say(error.message);
  }
});

// Continues a text. The end stays in sight, unless the user scrolls away from it.
async function write(before = box.value) {
  if (writing) return;
  if (!byId("settings").checkValidity()) {
    byId("details").open = true;
    byId("settings").reportValidity();
    return;
  }
  const request = { ...writer().request(), ...settings(), text: before };
  writing = writer();
  continued = before;
  showBusy();
  act();
  const began_ms = performance.now();
  let updated_ms = 0;
  let written = "";
  const change = {};
  const show = (soFar) => {
    const isFollowed = sheet.isAtEnd() || updated_ms === 0;
    written = soFar;
    box.set(before + written, change);
    update();
    if (isFollowed) sheet.reveal(box.value.length);
    updated_ms = performance.now();
  };
  const pass = (soFar) => {
    if (performance.now() - updated_ms > WRITING_MS) show(soFar); // each change lays out the whole text again
  };
  try {
    written = await writing.ask("write", request, pass);
    const n = [...written].length;
    const rate = (1000 * n) / (performance.now() - began_ms);
    sayDone("Wrote", n, `, ${rate.toFixed(0)} per second`);
  } catch (error) {
    writing.say(error.message, byId("message"));
  }
  writing = null;
  showBusy();
  show(written);
}

function showBusy() {
  for (const id of ["write", "again"]) enable(id, !writing);
  enable("stop", writing);
  box.field.readOnly = Boolean(writing);
}

const stopWriting = () => writing?.ask("stop");

function again() {
  if (!writing && byId("settings").checkValidity()) byId("seed").value = Number(byId("seed").value) + 1;
  write(continued);
}

async function copy() {
  try {
    await navigator.clipboard.writeText(box.hasReturns ? box.value.replaceAll(RETURN, "\r") : box.value);
  } catch {
    box.field.select(); // if the page may not write to the clipboard
    document.execCommand("copy");
  }
  sayDone("Copied", [...box.value].length);
}

// Shows models in the place of others. What was open stays open.
async function showModels(states) {
  while (writing) await stopWriting();
  const [before] = models;
  models.forEach((model) => model.end());
  models = states.map((state, i) => new Model(state, i, states.length > 1 ? "AB"[i] : ""));
  for (const { part } of before ? models : []) {
    for (const name of ["inside", "steps"]) part(name).open = before.part(name).open;
  }
  byId("writer").replaceChildren(...models.map(({ letter }, i) => make("option", letter, { value: i })));
  box.hasReturns = states.some(({ header }) => header.characters.includes(RETURN));
  offerPair();
  update();
}

// Lets the user choose between two models: the chosen one shades the text and is the only one shown on a phone.
function offerPair() {
  const show = (index) => {
    shown = Number(index);
    byId("models").dataset.shown = index;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === shown));
    drawText();
  };
  const buttons = models.map(({ letter }, i) => make("button", `Model ${letter}`, { onclick: () => show(i) }));
  byId("letters").replaceChildren("Text shaded by", ...buttons);
  byId("models").classList.toggle("pair", models.length > 1);
  byId("letters").hidden = byId("with").hidden = models.length < 2;
  show(0);
}

function start() {
  showModels(statesOfThisPage);
  for (const button of sheet.buttons) {
    button.addEventListener("click", () => models.forEach((model) => model.lookIfRead()));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    models.forEach((model) => model.viewer.drawMaps());
  });
  const pointAtCaret = () => point(Math.max(0, [...box.value.slice(0, box.field.selectionStart)].length - 1), true);
  box.field.onpointermove = (event) => {
    const character = sheet.at(event);
    if (character >= 0) point((pointed = character));
  };
  box.field.onpointerleave = () => {
    pointed = -1;
    drawText();
  };
  box.field.onclick = pointAtCaret;
  box.field.onkeyup = (event) => {
    if (event.key.startsWith("Arrow")) pointAtCaret();
  };
  byId("along").onchange = act;
  byId("settings").onsubmit = (event) => {
    event.preventDefault();
    write();
  };
  document.onkeydown = (event) => {
    if (event.target.closest("#train")) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
    if (event.key === "Escape") stopWriting();
    const [key, isCommand] = [event.key.toLowerCase(), (event.ctrlKey || event.metaKey) && !event.altKey];
    if (!isCommand || !"zy".includes(key) || event.target.matches("input")) return;
    box.step(key === "y" || event.shiftKey ? 1 : -1);
    event.preventDefault();
  };
  makeButtons({ write, stop: stopWriting, again, undo: () => box.step(-1), redo: () => box.step(1), copy });
  showBusy();
  enable("again", false);
  box.field.focus();
  sheet.reveal(box.value.length);
  new TrainView();
}

start();
