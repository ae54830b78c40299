// Adds an element with attributes and a text to an SVG, and returns it.
function addTo(svg, tag, attributes, text = "") {
  const element = svg.appendChild(document.createElementNS(svg.namespaceURI, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

// Draws curves of [step, loss] with the colours of the page, if one of them has two points.
function drawLosses(chart, ...curves) {
  const points = curves.flat();
  const isShort = curves.every(({ length }) => length < 2);
  chart.parentElement.toggleAttribute("hidden", isShort);
  if (isShort) return;
  const last = Math.max(...points.map(([step]) => step));
  const losses = points.map(([, loss]) => loss);
  const low = Math.min(...losses);
  const high = Math.max(...losses);
  const place = ([step, loss]) => [34 + (161 * step) / last, 5 + (61 * (high - loss)) / (high - low || 1)];
  curves.forEach((curve, i) => {
    const twice = curve.concat(curve.slice(-1)); // the last one, so that a curve of one point is a dot
    const width = curve.length < 2 ? 6 : 2;
    addTo(chart, "polyline", {
      points: twice.map(place).join(" "),
      stroke: `var(--series-${i})`,
      "stroke-width": width,
    });
  });
  const spoken = (i, [step, loss]) =>
    `${["training", "validation"][i]}, step ${step.toLocaleString("en")}: ${loss.toFixed(4)}`;
  chart.dataset.points = JSON.stringify(
    curves.flatMap((curve, i) => curve.map((each) => [...place(each), spoken(i, each)])),
  );
  addTo(chart, "text", { x: 0, y: 10 }, high.toFixed(2));
  addTo(chart, "text", { x: 0, y: 70 }, low.toFixed(2));
  addTo(chart, "text", { x: 195, y: 82, "text-anchor": "end" }, `step ${last}`);
}
