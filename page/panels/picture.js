// A picture of a run: what it wrote, from noise to words, and its losses.

import { colour, grouped } from "./elements.js";

const WIDTH = 1000;
const ROW = 30;
const MOST = 80; // characters of a line

// Returns a PNG, as a Blob. rows: those of `Writes`. curves: [{ title, points }], see `Loss`.
export async function pictureOf(title, rows, curves) {
  const lines = rows.flatMap(({ characters, texts }) =>
    texts.map((text, i) => [i ? "" : grouped(characters), text.trim().replaceAll("\n", " / ").slice(0, MOST), i]),
  );
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: WIDTH, height: 110 + ROW * (lines.length + curves.length) });
  const context = canvas.getContext("2d");
  const write = (text, x, y, font, variable = "--ink") => {
    context.font = font;
    context.fillStyle = colour(variable);
    context.fillText(text, x, y);
  };
  context.fillStyle = colour("--ground");
  context.fillRect(0, 0, canvas.width, canvas.height);
  write(title, 30, 50, "bold 26px system-ui, sans-serif");
  let y = 95;
  for (const [characters, text, i] of lines) {
    context.textAlign = "right";
    write(characters, 130, y, "16px system-ui, sans-serif", "--faint");
    context.textAlign = "left";
    write(text, 150, y, "17px ui-monospace, monospace", curves.length > 1 ? `--series-${i}` : "--ink");
    y += ROW;
  }
  curves.forEach(({ title: name, points }, i) => {
    const [characters, loss] = points.at(-1);
    write(
      `${name}: loss ${loss.toFixed(3)} after ${grouped(characters)} characters`,
      150,
      y,
      "16px system-ui",
      `--series-${i}`,
    );
    y += ROW;
  });
  return new Promise((done) => canvas.toBlob(done));
}
