// A picture of a run: what it wrote, from noise to words, and its losses.

import { colour, inShort, make } from "./elements.js";

const WIDTH = 1000;
const ROW = 30;
const MOST = 80; // characters of a line

// Returns a PNG, as a Blob. rows: those of `Writes`. curves: [{ title, points }], see `Loss`.
export async function pictureOf(title, rows, curves) {
  const line = (text) => [...text.trim().replaceAll("\n", " / ")].slice(0, MOST).join("");
  const samples = rows.flatMap(({ characters, texts }) =>
    texts.map((text, i) => [`${inShort(characters)}: ${line(text)}`, i]),
  );
  const losses = curves.map((curve, i) => [`${curve.title}: loss ${curve.points.at(-1)[1].toFixed(3)}`, i]);
  const lines = [[title, 0], ...samples, ...losses];
  const canvas = make("canvas", [], { width: WIDTH, height: ROW * (lines.length + 1) });
  const context = canvas.getContext("2d");
  context.fillStyle = colour("--ground");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.font = "17px ui-monospace, monospace";
  lines.forEach(([text, i], n) => {
    context.fillStyle = colour(`--series-${i}`);
    context.fillText(text, ROW, ROW * (n + 1));
  });
  return new Promise((done) => canvas.toBlob(done));
}
