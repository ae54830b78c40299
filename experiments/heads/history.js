"use strict";
// Choose heads to see their lines alone, and move the slider to see all heads at one step.

const data = JSON.parse(document.getElementById("history-data").textContent);
const chips = [...document.querySelectorAll("button.chip")];
const chart = document.querySelector(".history");
const slider = document.getElementById("slider");
const names = Object.keys(data.series);
const chosen = new Set();

function toggle(head) {
  if (!chosen.delete(head)) chosen.add(head);
  showChoice();
}

function showChoice() {
  chips.forEach((chip) => chip.setAttribute("aria-pressed", chosen.has(chip.dataset.head)));
  chart.classList.toggle("choosing", chosen.size > 0);
  chart.querySelectorAll("g.line").forEach((line) => {
    line.classList.toggle("chosen", [...line.classList].some((name) => chosen.has(name)));
  });
  document.querySelectorAll("#heads tbody tr").forEach((row) => {
    row.classList.toggle("chosen", chosen.has(row.dataset.head));
  });
}

function line(kind, cells) {
  const row = document.createElement("tr");
  row.append(
    ...cells.map((content) => {
      const cell = document.createElement(kind);
      cell.textContent = content;
      return cell;
    }),
  );
  return row;
}

function showStep(i) {
  document.getElementById("step").textContent = data.steps[i].toLocaleString("en");
  document.getElementById("loss").textContent = data.losses[i].toFixed(4);
  const [head, body] = ["thead", "tbody"].map((name) => document.createElement(name));
  head.append(line("th", ["head", ...names]));
  data.heads.forEach((name, h) => {
    const values = names.map((key) => data.series[key][i][h].toFixed(/back|scale/.test(key) ? 1 : 2));
    const row = line("td", [name, ...values]);
    row.dataset.head = name;
    body.append(row);
  });
  document.getElementById("heads").replaceChildren(head, body);
  showChoice();
}

chips.forEach((chip) => chip.addEventListener("click", () => toggle(chip.dataset.head)));
slider.addEventListener("input", () => showStep(Number(slider.value)));
showStep(data.steps.length - 1);
