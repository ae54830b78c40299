// Curves of losses over the characters that were read; each doubling is as wide as the one before.

import { addTo, inShort } from "./elements.js";

const SIDE = 4; // around the curves, in pixels
const BELOW = 18; // for the labels of the axis
const STRIP = 44; // the height of the strip with the difference of two models
const LABEL = 13; // the height of a label
const FIRST = 1024; // characters at the left end, at least
const LAST = 2 ** 20; // characters at the right end, at least: a curve that grows leaves what it has drawn in its place

// Draws curves { points: [[characters, loss], ...], title, colour } and lines that cross them: [[loss, label], ...].
// difference: that of two curves, [[characters, difference], ...], in a strip of its own, if it has points.
export function drawChart(svg, curves, lines = [], difference = []) {
  const [width, height] = [svg.clientWidth || 260, svg.clientHeight || 160];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`); // labels have the same size in every window
  svg.replaceChildren();
  svg.dataset.points = "[]";
  const points = curves.flatMap((curve) => curve.points.filter(([x]) => x > 0));
  const places = points.map(([x]) => x);
  const [first, last] = [Math.max(Math.min(...places, LAST / 16), FIRST), Math.max(...places, LAST)];
  const across = (x) => SIDE + ((width - 2 * SIDE) * Math.log(Math.max(x, first) / first)) / Math.log(last / first);
  const losses = [...points.map(([, loss]) => loss), ...lines.map(([loss]) => loss)];
  if (!losses.length) return;
  const low = Math.floor(2 * Math.min(...losses)) / 2; // so that the scale changes seldom
  const scale = scaleOf([...losses, low], LABEL, height - BELOW - (difference.length ? STRIP : 0));
  drawAxis(svg, first, last, across, { width, height });
  drawLines(svg, lines, scale, width);
  const shown = curves.flatMap(({ points: own, title, colour }) => {
    const drawn = own.filter(([x]) => x > 0).map(([x, loss]) => [across(x), scale(loss), spoken(title, x, loss)]);
    addTo(svg, "polyline", { points: drawn.map(([x, y]) => `${x},${y}`).join(" "), stroke: colour });
    if (drawn.length === 1) addTo(svg, "path", { d: `M${drawn[0][0]} ${drawn[0][1]}h0`, class: "dot" });
    return drawn;
  });
  svg.dataset.points = JSON.stringify(shown);
  if (difference.length) drawDifference(svg, difference, across, { width, height });
}

const spoken = (title, x, loss) => `${title}, ${inShort(x)} characters: ${loss.toFixed(3)}`;

// Returns where a value stands between these heights, given all values; the largest is on top.
function scaleOf(values, top, bottom) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return (value) => top + ((bottom - top - 4) * (high - value)) / (high - low || 1);
}

function drawAxis(svg, first, last, across, { width, height }) {
  for (let tick = 1000; tick <= last; tick *= 10) {
    if (tick < first) continue;
    const x = across(tick);
    addTo(svg, "path", { d: `M${x} ${height - BELOW}v4` });
    const anchor = x > width - 30 ? "end" : "middle";
    addTo(svg, "text", { x: Math.max(x, 22), y: height - 3, "text-anchor": anchor }, inShort(tick));
  }
}

function drawLines(svg, lines, scale, width) {
  for (const [loss, label] of lines) {
    const y = scale(loss);
    addTo(svg, "path", { d: `M${SIDE} ${y}H${width - SIDE}`, class: "guess" });
    addTo(svg, "text", { x: width - SIDE, y: y - 3, "text-anchor": "end" }, `${label} ${loss.toFixed(2)}`);
  }
}

function drawDifference(svg, difference, across, { width, height }) {
  const bottom = height - BELOW;
  const most = Math.max(...difference.map(([, each]) => Math.abs(each)), 0.01);
  const scale = scaleOf([most, -most], bottom - STRIP + 16, bottom);
  addTo(svg, "path", { d: `M${SIDE} ${scale(0)}H${width - SIDE}`, class: "guess" });
  const places = difference.map(([x, each]) => `${across(x)},${scale(each)}`);
  addTo(svg, "polyline", { points: places.join(" "), stroke: "var(--ink)" });
  addTo(svg, "text", { x: SIDE, y: bottom - STRIP + 10 }, `difference, up to ${most.toFixed(3)}`);
}
