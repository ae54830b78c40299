"use strict";
// Choose heads to see their lines alone.

const chips = [...document.querySelectorAll("button.chip")];
const chart = document.querySelector(".history");
const chosen = new Set();

function toggle(head) {
  if (!chosen.delete(head)) chosen.add(head);
  chips.forEach((chip) => chip.setAttribute("aria-pressed", chosen.has(chip.dataset.head)));
  chart.classList.toggle("choosing", chosen.size > 0);
  chart.querySelectorAll("g.line").forEach((line) => {
    line.classList.toggle("chosen", [...line.classList].some((name) => chosen.has(name)));
  });
}

chips.forEach((chip) => (chip.onclick = () => toggle(chip.dataset.head)));
