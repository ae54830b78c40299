// Draws curves of [step, loss] with the colours of the page.
function drawLosses(chart, ...curves) {
  const points = curves.flat();
  chart.toggleAttribute("hidden", points.length < 2);
  if (points.length < 2) return;
  const last = Math.max(...points.map(([step]) => step));
  const losses = points.map(([, loss]) => loss);
  const low = Math.min(...losses);
  const high = Math.max(...losses);
  const place = ([step, loss]) => [30 + (265 * step) / last, 5 + (65 * (high - loss)) / (high - low || 1)];
  const add = (tag, attributes, text = "") => {
    const element = chart.appendChild(document.createElementNS(chart.namespaceURI, tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
  };
  chart.replaceChildren();
  curves.forEach((curve, i) => {
    const twice = curve.concat(curve.slice(-1)); // the last one, so that a curve of one point is a dot
    add("polyline", { points: twice.map(place).join(" "), stroke: `var(--series-${i})` });
  });
  const spoken = (i, [step, loss]) =>
    `${["training", "validation"][i]}, step ${step.toLocaleString("en")}: ${loss.toFixed(4)}`;
  chart.dataset.points = JSON.stringify(
    curves.flatMap((curve, i) => curve.map((each) => [...place(each), spoken(i, each)])),
  );
  add("text", { x: 0, y: 10 }, high.toFixed(2));
  add("text", { x: 0, y: 72 }, low.toFixed(2));
  add("text", { x: 295, y: 81, "text-anchor": "end" }, `step ${last}: training blue, validation orange`);
}
