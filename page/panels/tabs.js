// The choice of the model that the panels show.

import { byId, make } from "./elements.js";

// Shows a button for each model: [{ title, isShown, show, series }, ...]; none for a single one. Buttons that are there
// stay, so that the keyboard keeps its place and no click is lost.
export function showTabs(tabs) {
  const root = byId("tabs");
  const shown = tabs.length > 1 ? tabs : [];
  while (root.children.length > shown.length) root.lastChild.remove();
  while (root.children.length < shown.length) root.append(make("button"));
  shown.forEach(({ title, isShown, show, series }, i) => {
    const button = Object.assign(root.children[i], { onclick: show, className: `series-${series}` });
    if (button.textContent !== title) button.textContent = title;
    button.setAttribute("aria-pressed", isShown);
  });
}
