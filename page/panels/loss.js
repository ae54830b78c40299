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
  showElsewhere(curves, lines = null) {
    Object.assign(this, { now: curves, lines, isElsewhere: true });
    this.draw();
  }

  // Begins with models that learn a text; those before stay, if they have learned the same one. Only models of one kind
  // are compared.
  begin(titles, kinds, text) {
    const trained = this.isElsewhere ? [] : this.now.filter(({ points }) => points.length > 1);
    const before = trained.map((each) => ({ ...each, title: `${each.title}, before` }));
    this.earlier = this.text?.key === text.key ? [...before, ...this.earlier] : [];
    const now = titles.map((title, i) => ({ title, kind: kinds[i], points: [] }));
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
    byId("compared").textContent = !this.isElsewhere && known.length ? this.compare() : "";
  }

  rowOf({ title, kind, points }, i) {
    const [characters, loss] = points.at(-1);
    const cells = [title, inShort(characters), loss.toFixed(3)].map((text) => make("td", text));
    return make("tr", cells, { className: i < this.now.length ? `series-${i}` : "", title: kind });
  }

  // Says which model is ahead after equal numbers of characters, and how little that proves.
  compare() {
    const [a, b] = this.now;
    const at = a.points.at(-1)[0];
    if (!at) return "";
    if (b) {
      const [better, worse] = a.points.at(-1)[1] <= b.points.at(-1)[1] ? [a, b] : [b, a];
      const by = worse.points.at(-1)[1] - better.points.at(-1)[1];
      const ahead = better.title.startsWith("1 ") ? "is ahead" : "are ahead";
      return `At ${inShort(at)} characters, ${better.title} ${ahead} by ${by.toFixed(3)}. One seed proves little.`;
    }
    const last = this.earlier.find(({ kind }) => kind === a.kind);
    if (!last) return "";
    const common = Math.min(at, last.points.at(-1)[0]);
    const [mine, other] = [a, last].map(({ points }) => lossAt(points, common).toFixed(3));
    const advice = "But rates fell at other times: “Against” trains both side by side.";
    return `At ${inShort(common)} characters, ${a.title} had ${mine}, and ${last.title}, ${other}. ${advice}`;
  }
}

// Returns the differences of two curves at the characters that both have; none without a second one.
function differenceOf([a, b]) {
  if (!b || a.points.length !== b.points.length) return [];
  return a.points.flatMap(([x, loss], i) => (x && x === b.points[i][0] ? [[x, b.points[i][1] - loss]] : []));
}

// Returns the loss after so many characters, between the evaluations before and after them.
function lossAt(points, characters) {
  const after = points.findIndex(([x]) => x >= characters);
  const [x1, y1] = points[after];
  if (x1 === characters || after === 0) return y1;
  const [x0, y0] = points[after - 1];
  const share = Math.log((characters + 1) / (x0 + 1)) / Math.log((x1 + 1) / (x0 + 1));
  return y0 + share * (y1 - y0);
}
