// Curves of losses over the characters that were read; each doubling is as wide as the one before.

import { addTo, inShort } from "./elements.js";

const SIDE = 4; // around the curves, in pixels
const BELOW = 18; // for the labels of the axis
const LABEL = 13; // the height of a label
const FIRST = 1024; // characters at the left end, at least
const LAST = 2 ** 20; // characters at the right end, at least: a curve that grows leaves what it has drawn in its place

// Draws curves { points: [[characters, loss], ...], title, colour } and lines that cross them: [[loss, label], ...].
export function drawChart(svg, curves, lines = []) {
  const [width, height] = [svg.clientWidth || 260, svg.clientHeight || 160];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`); // labels have the same size in every window
  svg.replaceChildren();
  svg.dataset.points = "[]";
  const points = curves.flatMap((curve) => curve.points.filter(([x]) => x > 0));
  const losses = [...points.map(([, loss]) => loss), ...lines.map(([loss]) => loss)];
  if (!losses.length) return;
  const places = points.map(([x]) => x);
  const [first, last] = [Math.max(Math.min(...places, LAST / 16), FIRST), Math.max(...places, LAST)];
  const across = (x) => SIDE + ((width - 2 * SIDE) * Math.log(Math.max(x, first) / first)) / Math.log(last / first);
  const high = Math.max(...losses);
  const low = Math.floor(2 * Math.min(...losses)) / 2; // so that the scale changes seldom
  const down = (loss) => LABEL + ((height - BELOW - LABEL - 4) * (high - loss)) / (high - low || 1);
  for (let tick = 1000; tick <= last; tick *= 10) {
    if (tick < first) continue;
    const x = across(tick);
    addTo(svg, "path", { d: `M${x} ${height - BELOW}v4`, class: "tick" });
    const anchor = x > width - 30 ? "end" : "middle";
    addTo(svg, "text", { x: Math.max(x, 22), y: height - 3, "text-anchor": anchor }, inShort(tick));
  }
  for (const [loss, label] of lines) {
    addTo(svg, "path", { d: `M${SIDE} ${down(loss)}H${width - SIDE}`, class: "guess" });
    const text = `${label} ${loss.toFixed(2)}`;
    addTo(svg, "text", { x: width - SIDE, y: down(loss) - 3, "text-anchor": "end" }, text);
  }
  const shown = curves.flatMap(({ points: own, title, colour }) => {
    const drawn = own.filter(([x]) => x > 0).map(([x, loss]) => [across(x), down(loss), spoken(title, x, loss)]);
    addTo(svg, "polyline", { points: drawn.map(([x, y]) => `${x},${y}`).join(" "), stroke: colour });
    if (drawn.length === 1) addTo(svg, "path", { d: `M${drawn[0][0]} ${drawn[0][1]}h0`, class: "dot" });
    return drawn;
  });
  svg.dataset.points = JSON.stringify(shown);
}

const spoken = (title, x, loss) => `${title}, ${inShort(x)} characters: ${loss.toFixed(3)}`;
