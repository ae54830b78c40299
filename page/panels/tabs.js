// The choice of the model that the panels show.

import { byId, keepChildren, make } from "./elements.js";

// Shows a button for each model of a run and of the page, if there are several.
export function showTabs(desk, run, own) {
  const all = [run?.models ?? [], own].flatMap((models) => models.map((model, place) => ({ models, model, place })));
  const shown = all.length > 1 ? all : [];
  keepChildren(byId("tabs"), shown.length, () => make("button"));
  shown.forEach(({ models, model, place }, i) => {
    const button = byId("tabs").children[i];
    const title = models === own ? model.state.name : run.titles[place];
    if (button.textContent !== title) button.textContent = title; // or a click in this moment would be lost
    Object.assign(button, { onclick: () => desk.show(models, place), className: `series-${model.index}` });
    button.setAttribute("aria-pressed", model === desk.model);
  });
}
