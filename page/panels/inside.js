// The model as a drawing, in which the map of each head stands where the head stands.

import { byId, colour, make, strength } from "./elements.js";

export class Inside {
  // choose(h): the user presses the h-th of all heads.
  constructor(choose) {
    Object.assign(this, { choose, tiles: [], built: null });
  }

  // Shows a model, and its maps if there are any. head: the chosen one.
  show(model, head) {
    if (this.built !== model) this.build(model);
    this.tiles.forEach((tile, h) => {
      tile.setAttribute("aria-pressed", h === head);
      tile.classList.toggle("off", model.off.has(model.heads[h].name));
    });
  }

  showMaps(model) {
    const { roles } = model.reading;
    const changes = model.state.header.measured?.changes;
    this.tiles.forEach((tile, h) => {
      const { name, words } = model.heads[h];
      const [role, figure] = roles[h];
      drawMap(tile.firstChild, model, h);
      const known = [role === "no fixed target" ? null : role, changes?.[name][0]];
      tile.lastChild.textContent = known.filter(Boolean).join(", ");
      tile.title = `${words}: ${role} (${figure})${changes ? `; ${changes[name][1]}` : ""}`;
    });
  }

  build(model) {
    this.built = model;
    const { config, heads, state } = model;
    this.tiles = heads.map(({ number, words }, h) => {
      const content = [make("canvas"), make("b", number), make("span")];
      return make("button", content, { className: "head", title: words, onclick: () => this.choose(h) });
    });
    const { n_embd: C, ngrams, longest_copy, conv_width } = config;
    const row = (text, title = "") => make("div", text, { className: "block", title });
    const rows = [row(`${C} numbers for each character`)];
    if (ngrams.length) rows.push(row(`memory of the last ${ngrams.join(", ")} characters`, "n-grams"));
    if (longest_copy) rows.push(row("memory of what followed the same characters before", "copies"));
    config.layers.forEach(({ n_head: H, n_kv_head: K, head_size: D }, l) => {
      const shared = K < H ? `; they share ${K} key and value heads` : "";
      const layer = row([], `layer ${l}: ${H} head${H > 1 ? "s" : ""} of ${D} numbers${shared}`);
      layer.classList.add("layer");
      layer.append(...this.tiles.filter((_, h) => heads[h].layer === l));
      const hidden = state.header.tensors[`blocks.${l}.mlp.proj.weight`].shape[1];
      const mixed = conv_width > 1 ? `${conv_width} neighbours, ` : "";
      rows.push(layer, row(`${mixed}MLP: ${hidden} numbers`, `layer ${l}`));
    });
    rows.push(row(`a guess among ${[...state.header.characters].length} characters`));
    byId("net").replaceChildren(...rows);
  }
}

// Draws the map of the h-th of all heads: one pixel for each pair of characters; the page scales it.
export function drawMap(canvas, model, h) {
  const T = model.reading.shown.length;
  canvas.width = canvas.height = T;
  const context = canvas.getContext("2d");
  const image = context.createImageData(T, T);
  for (let q = 0; q < T; q++) {
    for (let k = 0; k <= q; k++) image.data[4 * (q * T + k) + 3] = 255 * strength(model.weight(h, q, k)); // opacity
  }
  context.putImageData(image, 0, 0);
  context.globalCompositeOperation = "source-in"; // what is drawn keeps its opacity and gets the colour
  context.fillStyle = colour(`--series-${model.index}`);
  context.fillRect(0, 0, T, T);
}
