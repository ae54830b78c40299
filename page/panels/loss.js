// How good the models are: curves over the characters that they have read, and a row for each run of this visit.

import { answerToPointer } from "./curves.js";
import { drawChart } from "./chart.js";
import { byId, inShort, make } from "./elements.js";

const LINES = { even: "guessing evenly", single: "common letters", pairs: "pairs of letters" };

export class Loss {
  constructor() {
    Object.assign(this, { now: [], earlier: [], lines: null, text: null });
    new ResizeObserver(() => this.draw()).observe(byId("curve"));
    answerToPointer(byId("curve"));
  }

  // Shows the losses of models that were trained elsewhere, [{ title, points: [[characters, loss], ...] }, ...], beside
  // those of simple guesses on the same characters, if they are known.
  showElsewhere(curves, lines) {
    Object.assign(this, { now: curves, lines, isElsewhere: true });
    this.draw();
  }

  // Begins with models that learn a text; those before stay, if they have learned the same one.
  begin(titles, text) {
    const trained = this.isElsewhere ? [] : this.now.filter(({ points }) => points.length > 1);
    const before = trained.map((each) => ({ ...each, title: `${each.title}, before` }));
    this.earlier = this.text?.key === text.key ? [...before, ...this.earlier] : [];
    const now = titles.map((title) => ({ title, points: [] }));
    Object.assign(this, { text, lines: text.lines, now, isElsewhere: false });
    this.draw();
  }

  note({ characters, losses }) {
    this.now.forEach(({ points }, i) => {
      if (points.at(-1)?.[0] === characters) points.pop();
      points.push([characters, losses[i].heldOut]);
    });
    this.draw();
  }

  draw() {
    const { now, earlier, lines } = this;
    const known = now.filter(({ points }) => points.length);
    const keys = known.map(({ title, points }, i) =>
      make("div", [make("b", points.at(-1)[1].toFixed(3)), make("span", title)], { className: `key series-${i}` }),
    );
    byId("keys").replaceChildren(...keys);
    const curves = [
      ...earlier.map((each) => ({ ...each, colour: "var(--faint)" })),
      ...now.map((each, i) => ({ ...each, colour: `var(--series-${i})` })),
    ];
    const guesses = lines ? Object.entries(LINES).map(([line, label]) => [lines[line], label]) : [];
    drawChart(byId("curve"), curves, guesses, differenceOf(now));
    const rows = this.isElsewhere ? [] : [...known, ...earlier];
    byId("runs").replaceChildren(...rows.map((each, i) => this.rowOf(each, i)));
    byId("runs").closest("table").classList.toggle("empty", !rows.length);
    byId("compared").textContent = this.isElsewhere ? "" : comparisonOf(now);
  }

  rowOf({ title, points }, i) {
    const [characters, loss] = points.at(-1);
    const cells = [title, inShort(characters), loss.toFixed(3)].map((text) => make("td", text));
    return make("tr", cells, { className: i < this.now.length ? `series-${i}` : "" });
  }
}

// Says which of two models is ahead after equal numbers of characters, and how little that proves.
function comparisonOf([a, b]) {
  const [at, loss] = a?.points.at(-1) ?? [];
  if (!b || !at) return "";
  const difference = b.points.at(-1)[1] - loss;
  const { title } = difference < 0 ? b : a;
  const ahead = title.startsWith("1 ") ? "is ahead" : "are ahead";
  return `At ${inShort(at)} characters, ${title} ${ahead} by ${Math.abs(difference).toFixed(3)}. One seed proves little.`;
}

// Returns the differences of two curves at the characters that both have; none without a second one.
function differenceOf([a, b]) {
  if (!b || a.points.length !== b.points.length) return [];
  return a.points.flatMap(([x, loss], i) => (x && x === b.points[i][0] ? [[x, b.points[i][1] - loss]] : []));
}
