"use strict";
// A viewer of attention maps: choose a head, then point at a character to see what it attends to.

const LISTED = 8; // keys in the list

function make(tag, text, attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  return element;
}

// Shows data (see `viewer_data`) in an element. onChoose(query, pinned) hears of characters that are chosen here.
function attentionViewer(root, data, onChoose = () => {}) {
  const part = (name) => root.querySelector(`.${name}`);
  const names = data.layers.flat();
  const weights = decode(data.weights);
  const T = data.shown.length;
  let head = 0;
  let query = T - 1;
  let pinned = false;

  root.replaceChildren(document.getElementById("viewer").content.cloneNode(true));
  const text = part("text");
  const map = part("map");
  const spans = data.shown.map((label, i) => make("span", label, { className: label === data.text[i] ? "" : "blank" }));
  text.append(...spans.flatMap((span, i) => (data.text[i] === "\n" ? [span, make("br")] : [span])));
  for (const layer of data.layers) {
    const row = make("div", "", { className: "row" });
    for (const name of layer) {
      const button = make("button", "", { className: "head", onclick: () => chooseHead(names.indexOf(name)) });
      button.append(make("canvas"), name);
      row.append(button);
    }
    part("grid").append(row);
  }
  const buttons = [...root.querySelectorAll("button.head")];

  function weight(h, q, k) {
    return k > q ? 0 : weights[(h * T * (T + 1)) / 2 + (q * (q + 1)) / 2 + k];
  }

  // One pixel per pair of characters; the page scales it.
  function drawMap(canvas, h) {
    const [red, green, blue] = colour("--series-0");
    canvas.width = canvas.height = T;
    const context = canvas.getContext("2d");
    const image = context.createImageData(T, T);
    for (let q = 0; q < T; q++) {
      for (let k = 0; k <= q; k++) {
        image.data.set([red, green, blue, 255 * strength(weight(h, q, k))], 4 * (q * T + k));
      }
    }
    context.putImageData(image, 0, 0);
  }

  function drawAll() {
    buttons.forEach((button, h) => drawMap(button.querySelector("canvas"), h));
    chooseHead(head);
  }

  function chooseHead(h) {
    head = h;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === head));
    drawMap(map, head);
    show();
  }

  function show() {
    spans.forEach((span, k) => {
      const w = weight(head, query, k);
      span.style.setProperty("--w", `${Math.round(100 * strength(w))}%`);
      span.dataset.weight = k > query ? "" : w.toFixed(4);
      span.title = k > query ? "not visible yet" : `${data.shown[k]} at ${k}: ${w.toFixed(4)}`;
      span.classList.toggle("query", k === query);
      span.classList.toggle("future", k > query);
    });
    const keys = Array.from({ length: query + 1 }, (_, k) => k);
    keys.sort((a, b) => weight(head, query, b) - weight(head, query, a));
    part("looking").textContent = `${names[head]}: ${data.shown[query]} at ${query} attends to`;
    part("keys").replaceChildren(
      ...keys.slice(0, LISTED).map((k) => {
        const w = weight(head, query, k);
        const item = make("li", `${data.shown[k]} at ${k}: ${w.toFixed(3)}`);
        item.dataset.key = k;
        item.style.setProperty("--w", `${100 * w}%`);
        return item;
      }),
    );
    Object.assign(part("chosen-row").style, {
      top: `${(100 * query) / T}%`,
      height: `${100 / T}%`,
      width: `${(100 * (query + 1)) / T}%`,
    });
  }

  // Selects a character here; `select` alone does not report it to other viewers.
  function select(q, isPinned) {
    query = Math.min(T - 1, Math.max(0, q));
    pinned = isPinned;
    text.classList.toggle("pinned", pinned);
    show();
  }

  function choose(q, isPinned = pinned) {
    select(q, isPinned);
    onChoose(query, pinned);
  }

  text.onpointerover = (event) => {
    const i = spans.indexOf(event.target);
    if (i >= 0 && !pinned) choose(i);
  };
  text.onclick = (event) => {
    const i = spans.indexOf(event.target);
    if (i >= 0) choose(i, !(pinned && i === query));
  };
  text.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(query + by);
  };
  map.onpointermove = (event) => {
    const box = map.getBoundingClientRect();
    const at = (value, start, size) => Math.min(T - 1, Math.max(0, Math.floor(((value - start) / size) * T)));
    const [q, k] = [at(event.clientY, box.top, box.height), at(event.clientX, box.left, box.width)];
    if (!pinned) choose(q);
    const where = `${data.shown[query]} at ${query}, ${data.shown[k]} at ${k}`;
    const found = k > query ? "not visible" : weight(head, query, k).toFixed(3);
    part("place").textContent = `${where}: ${found}`;
  };
  matchMedia("(prefers-color-scheme: dark)").onchange = drawAll;
  drawAll();
  return { select };
}

// Decodes each head's lower triangle, row by row, from 16-bit fractions.
function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / 65535);
}

// Red, green and blue of a CSS variable, which may have any notation.
function colour(name) {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

// The square root makes small weights visible beside large ones.
function strength(w) {
  return Math.sqrt(w);
}
