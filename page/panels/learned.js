// What models have learned, in sentences: each one once, with the time at which it became true.

import { byId, make } from "./elements.js";

const BEATEN = 0.01; // nats below the loss of a simpler guess on the same characters
const RISEN = 0.02; // nats above the best loss on the held-out text, while that in training falls,
const IN_A_ROW = 5; // in so many evaluations
const BEATS = {
  even: "It guesses better than evenly: some letters are more common.",
  single: "It knows which letters are common: better than their counts.",
  pairs: "It knows which letter follows which: better than counts of pairs.",
};

export const spokenTime = (seconds) =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

export class Learned {
  // titles: of the models. lines: see `open` in trainer.js.
  constructor(titles, lines) {
    Object.assign(this, { titles, lines, told: new Set(), time: 0 });
    byId("learned").replaceChildren();
  }

  tell(i, does) {
    const key = `${i} ${does}`;
    if (this.told.has(key)) return;
    this.told.add(key);
    const own = does[0].toLowerCase() + does.slice(1);
    const sentence = this.titles.length > 1 ? `${this.titles[i]}: ${own}` : does;
    byId("learned").prepend(make("p", [make("b", spokenTime(this.time)), ` ${sentence}`])); // the newest is in sight
  }

  // Says what losses show. now: see `progress` in trainer.js. history: those before.
  note(now, history) {
    this.time = now.seconds;
    if (!now.characters) return;
    now.losses.forEach(({ heldOut }, i) => {
      const isBeaten = (_, n, all) => all.slice(0, n + 1).every((line) => heldOut < this.lines[line] - BEATEN);
      const line = Object.keys(BEATS).filter(isBeaten).at(-1);
      if (line) this.tell(i, BEATS[line]);
      if (this.isByHeart(i, now, history)) {
        this.tell(i, "On held-out text its loss rises: it learns the text by heart. Its best weights are kept.");
      }
    });
  }

  // Whether the loss has risen on the held-out text and falls on the text that is learned; a higher rate raises both.
  isByHeart(i, now, history) {
    const { train, best, bestStep } = now.losses[i];
    const atBest = history.find(({ steps }) => steps === bestStep)?.losses[i].train;
    const isNew = ({ steps }, n, all) => steps > bestStep && steps !== all[n - 1]?.steps; // a pause evaluates again
    const newest = [...history, now].filter(isNew).slice(-IN_A_ROW);
    return (
      newest.length === IN_A_ROW && newest.every(({ losses }) => losses[i].heldOut > best + RISEN) && train < atBest
    );
  }

  noteRoles(i, roles, heads) {
    roles.forEach(([role], h) => {
      if (role === "no fixed target" || this.told.has(`${i} ${role}`)) return;
      this.told.add(`${i} ${role}`);
      this.tell(i, `In ${heads[h].words} often looks at: ${role}.`);
    });
  }
}
