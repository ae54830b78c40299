// The choice of the model that the panels show.

import { byId, keepChildren, make } from "./elements.js";

// Shows a button for each model: [{ title, isShown, show, series }, ...]; none for a single one.
export function showTabs(tabs) {
  const root = byId("tabs");
  const shown = tabs.length > 1 ? tabs : [];
  keepChildren(root, shown.length, () => make("button"));
  shown.forEach(({ title, isShown, show, series }, i) => {
    const button = Object.assign(root.children[i], { onclick: show, className: `series-${series}` });
    if (button.textContent !== title) button.textContent = title;
    button.setAttribute("aria-pressed", isShown);
  });
}
