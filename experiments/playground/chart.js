// Curves with the colours of the page.

const CHART = { left: 34, top: 5, right: 5, below: 22 }; // around the curves, in the units of the drawing
const LABEL = 13; // the height of a label

// Adds an element with attributes and a text to an SVG, and returns it.
function addTo(svg, tag, attributes, text = "") {
  const element = svg.appendChild(document.createElementNS(svg.namespaceURI, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

// Draws curves over the same x, from 0 to a last one that has a label, and lines that cross them.
// curves: { points: [[x, loss, spoken], ...], colour, width }; the width 0 draws dots. lines: [[loss, label], ...].
function drawChart(svg, curves, lastLabel, lines = []) {
  const { width, height } = svg.viewBox.baseVal;
  const points = curves.flatMap((curve) => curve.points);
  const last = Math.max(...points.map(([x]) => x), 1);
  const losses = [...points, ...lines.map(([loss]) => [0, loss])].map(([, loss]) => loss);
  const low = Math.min(...losses);
  const high = Math.max(...losses);
  const top = CHART.top + (lines.length && LABEL);
  const [across, down] = [width - CHART.left - CHART.right, height - top - CHART.below];
  const place = ([x, loss]) => [CHART.left + (across * x) / last, top + (down * (high - loss)) / (high - low || 1)];
  svg.replaceChildren();
  let lowest = height; // of a label, above its line and above the label before
  for (const [loss, label] of [...lines].sort(([a], [b]) => a - b)) {
    const [x, y] = place([last, loss]);
    lowest = Math.min(y - 3, lowest - LABEL);
    addTo(svg, "path", { d: `M${CHART.left} ${y}H${x}` });
    addTo(svg, "text", { x, y: lowest, "text-anchor": "end" }, label);
  }
  for (const curve of curves) {
    const stroke = `var(--series-${curve.colour})`;
    const places = curve.points.map(place);
    if (curve.width === 0) {
      addTo(svg, "path", { d: places.map((each) => `M${each}h0`).join(""), stroke, class: "dots" });
    } else {
      const [ends, thick] = places.length < 2 ? [[...places, ...places], 6] : [places, curve.width]; // one point: a dot
      addTo(svg, "polyline", { points: ends.join(" "), stroke, "stroke-width": thick });
    }
  }
  svg.dataset.points = JSON.stringify(points.map((each) => [...place(each), each[2]]));
  addTo(svg, "text", { x: 0, y: top + 5 }, high.toFixed(2));
  addTo(svg, "text", { x: 0, y: height - CHART.below + 4 }, low.toFixed(2));
  addTo(svg, "text", { x: width - CHART.right, y: height - 6, "text-anchor": "end" }, lastLabel);
}

// Draws the losses of a run, [step, loss] in training and in validation, if one of them has two points.
function drawRun(svg, ...losses) {
  const isShort = losses.every(({ length }) => length < 2);
  svg.parentElement.toggleAttribute("hidden", isShort);
  if (isShort) return;
  const spoken = (i, step, loss) =>
    `${["training", "validation"][i]}, step ${step.toLocaleString("en")}: ${loss.toFixed(4)}`;
  const curves = losses.map((points, i) => ({
    points: points.map(([step, loss]) => [step, loss, spoken(i, step, loss)]),
    colour: i,
    width: 2,
  }));
  drawChart(svg, curves, `step ${Math.max(...losses.flat().map(([step]) => step))}`);
}
