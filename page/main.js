// The page begins: it shows its own models, and gets ready to train others.

import { Bar } from "./bar.js";
import { inBox, vocabularyOf } from "./compute/vocabulary.js";
import { Desk } from "./desk.js";
import { Model } from "./model.js";
import { byId, make } from "./panels/elements.js";
import { Keep } from "./panels/keep.js";
import { Loss } from "./panels/loss.js";
import { showTabs } from "./panels/tabs.js";
import { Writes } from "./panels/writes.js";

const source = document.documentElement.cloneNode(true); // before the page changes; see `pageOf`

function begin() {
  for (const filled of document.querySelectorAll("[data-filled]")) filled.replaceChildren(); // by a browser that saved it
  const training = JSON.parse(byId("training").textContent);
  const states = JSON.parse(byId("models-of-this-page").textContent);
  for (const state of states) Object.assign(state.header, vocabularyOf(state.characters, training.look_alikes));
  const [first] = states;
  const opening = inBox(first.opening, first.characters);
  const own = states.map((state, i) => new Model(state, i));
  const loss = new Loss();
  let bar = null; // until the models of the page are shown
  const desk = new Desk(opening, () => showTabs(desk, bar?.run, own));
  const keep = new Keep(source, training.settings, () => bar?.run);
  desk.show(own, 0);
  const curves = states.map((state) => ({ title: state.name, points: state.points }));
  bar = new Bar(training, { desk, loss }, (text) => {
    keep.describe();
    showTabs(desk, bar?.run, own);
    if (!bar?.run) loss.showElsewhere(curves, first.is_bundled && text?.isOfPage ? text.lines : null);
  });
  byId("learned").append(make("p", "Nothing yet: Train makes a new model.", { className: "note" }));
  const writes = new Writes([""]);
  if (!first.is_prompt) writes.show(first.points.at(-1)?.[0] ?? 0, [[...opening].slice(0, 60).join("")]);
  bar.openText();
}

begin();
