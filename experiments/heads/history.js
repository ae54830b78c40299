"use strict";
// Choose heads to see their lines alone, and move the slider to see all heads at one step.

const data = JSON.parse(document.getElementById("history-data").textContent);
const chips = [...document.querySelectorAll("button.chip")];
const rows = [...document.querySelectorAll("#heads tbody tr")];
const chart = document.querySelector(".history");
const slider = document.getElementById("slider");
const chosen = new Set();

function toggle(head) {
  if (!chosen.delete(head)) chosen.add(head);
  chips.forEach((chip) => chip.setAttribute("aria-pressed", chosen.has(chip.dataset.head)));
  rows.forEach((row) => row.classList.toggle("chosen", chosen.has(row.dataset.head)));
  chart.classList.toggle("choosing", chosen.size > 0);
  chart.querySelectorAll("g.line").forEach((line) => {
    line.classList.toggle("chosen", [...line.classList].some((name) => chosen.has(name)));
  });
}

function showStep(i) {
  document.getElementById("step").textContent = data.steps[i].toLocaleString("en");
  document.getElementById("loss").textContent = data.losses[i].toFixed(4);
  rows.forEach((row, h) => {
    Object.entries(data.series).forEach(([name, values], column) => {
      row.cells[column + 1].textContent = values[i][h].toFixed(/back|scale/.test(name) ? 1 : 2);
    });
  });
}

chips.forEach((chip) => (chip.onclick = () => toggle(chip.dataset.head)));
slider.oninput = () => showStep(Number(slider.value));
showStep(data.steps.length - 1);
