// What every panel uses: elements, numbers in words, and work that is done one at a time.

export const byId = (id) => document.getElementById(id);
export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
export const grouped = (n) => Math.round(n).toLocaleString("en");
export const upTo = (last) => Array.from({ length: last + 1 }, (_, i) => i);
export const strength = Math.sqrt; // of the shade of a weight: the root makes small weights visible

// Returns a number of characters in few digits, such as 20,480 or 1.29 M.
export const inShort = (n) => (n < 1e6 ? grouped(n) : `${Number((n / 1e6).toFixed(2))} M`);

// Returns a new element with a text or with other elements in it.
export function make(tag, content = [], attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...[content].flat());
  return element;
}

export function addTo(svg, tag, attributes, text = "") {
  const element = svg.appendChild(document.createElementNS(svg.namespaceURI, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

export function say(message, element = byId("message"), isWarning = true) {
  if (element.textContent !== message) element.textContent = message; // a screen reader speaks it at each change
  element.classList.toggle("warning", isWarning && message !== "");
}

// A button that cannot be pressed now keeps the focus of the keyboard.
export function enable(id, can) {
  byId(id).setAttribute("aria-disabled", !can);
}

export function makeButtons(works) {
  for (const [id, work] of Object.entries(works)) {
    byId(id).onclick = () => {
      if (byId(id).getAttribute("aria-disabled") !== "true") work();
    };
  }
}

// Gives an element n children. Those that are there stay, so that the keyboard keeps its place.
export function keepChildren(root, n, makeChild) {
  while (root.children.length > n) root.lastChild.remove();
  while (root.children.length < n) root.append(makeChild(root.children.length));
}

// Shows bars as long as shares, with a label and a percentage each: [[label, share], ...]. choose(i): what a press does;
// without it, the bars are no buttons.
export function showBars(root, bars, choose) {
  keepChildren(root, bars.length, () => make(choose ? "button" : "div", [make("span"), " ", make("span")]));
  bars.forEach(([label, share], i) => {
    const bar = root.children[i];
    if (choose) bar.onclick = () => choose(i);
    bar.firstChild.textContent = label;
    bar.lastChild.textContent = percent(share);
    bar.style.setProperty("--w", `${100 * share}%`);
  });
}

// Returns a function that runs `work`, and runs it once more if it is called meanwhile: answers come in order.
export function oneAtATime(work) {
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
