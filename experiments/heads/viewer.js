"use strict";
// A viewer of attention maps: choose a head, then point at a character to see what it attends to.
// `attentionViewer(root, onChoose)` brings to life one element that `heads/viewer.py` made.

const LISTED = 8; // keys in the list

function attentionViewer(root, onChoose = () => {}) {
  const part = (name) => root.querySelector(`.${name}`);
  const data = JSON.parse(part("data").textContent);
  const T = data.shown.length;
  const weights = decode(data.weights);
  const text = part("text");
  const spans = [...text.querySelectorAll("span")];
  const buttons = [...root.querySelectorAll("button.head")];
  const map = part("map");
  const row = part("chosen-row"); // the chosen character's row in the map

  let head = 0;
  let query = T - 1;
  let pinned = false;

  function weight(h, q, k) {
    return k > q ? 0 : weights[(h * T * (T + 1)) / 2 + (q * (q + 1)) / 2 + k];
  }

  // One pixel per pair of characters; the page scales it.
  function drawMap(canvas, h, [red, green, blue]) {
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
    const ink = colour("--series-0");
    buttons.forEach((button, h) => drawMap(button.querySelector("canvas"), h, ink));
    chooseHead(head);
  }

  function chooseHead(h) {
    head = h;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === head));
    drawMap(map, head, colour("--series-0"));
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
    part("looking").textContent = `${data.heads[head]}: ${data.shown[query]} at ${query} attends to`;
    part("keys").replaceChildren(
      ...keys.slice(0, LISTED).map((k) => {
        const item = document.createElement("li");
        const w = weight(head, query, k);
        item.dataset.key = k;
        item.style.setProperty("--w", `${100 * w}%`);
        item.textContent = `${data.shown[k]} at ${k}: ${w.toFixed(3)}`;
        return item;
      }),
    );
    row.style.top = `${(100 * query) / T}%`;
    row.style.height = `${100 / T}%`;
    row.style.width = `${(100 * (query + 1)) / T}%`;
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

  buttons.forEach((button, h) => button.addEventListener("click", () => chooseHead(h)));
  text.addEventListener("pointerover", (event) => {
    const i = spans.indexOf(event.target);
    if (i >= 0 && !pinned) choose(i);
  });
  text.addEventListener("click", (event) => {
    const i = spans.indexOf(event.target);
    if (i >= 0) choose(i, !(pinned && i === query));
  });
  text.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(query + by);
  });
  map.addEventListener("pointermove", (event) => {
    const box = map.getBoundingClientRect();
    const at = (value, start, size) => Math.min(T - 1, Math.max(0, Math.floor(((value - start) / size) * T)));
    const [q, k] = [at(event.clientY, box.top, box.height), at(event.clientX, box.left, box.width)];
    if (!pinned) choose(q);
    const where = `${data.shown[query]} at ${query}, ${data.shown[k]} at ${k}`;
    part("place").textContent =
      k > query ? `${where}: not visible` : `${where}: ${weight(head, query, k).toFixed(3)}`;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
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

// The viewers of a page show the same text, so a character chosen in one is chosen in all.
const viewers = [...document.querySelectorAll(".viewer")].map((root, i) =>
  attentionViewer(root, (query, pinned) => {
    viewers.forEach((viewer, j) => j === i || viewer.select(query, pinned));
  }),
);
