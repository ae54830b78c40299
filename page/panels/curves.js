// Calls `forget` when the pointer leaves an element. A finger leaves as soon as it is lifted, so what it showed stays.
export function whenLeft(element, forget) {
  element.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType !== "touch") forget();
  });
}

// Shows the point of a curve that is nearest to the pointer, in the element before it. data-points: [[x, y, text], ...].
export function answerToPointer(svg) {
  const tip = svg.previousElementSibling;
  const dot = document.createElementNS(svg.namespaceURI, "circle");
  dot.setAttribute("r", 4);
  svg.onpointermove = svg.onpointerdown = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const points = JSON.parse(svg.dataset.points);
    if (!points.length) return;
    const far = ([x, y]) => Math.hypot(x - at.x, y - at.y);
    const [x, y, text] = points.reduce((a, b) => (far(b) < far(a) ? b : a));
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
    svg.append(dot);
    tip.textContent = text;
  };
  whenLeft(svg, () => {
    dot.remove();
    tip.textContent = "";
  });
}
