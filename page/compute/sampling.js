// Drawing a character from logits, as model/generate.py does; only the random numbers are others.

import { softmax } from "./gpt.js";
import { makeRandom } from "./random.js";

const LOWEST_TEMPERATURE = 1e-6; // a lower one counts as 0

// Returns the probability of each character (V,).
export function probabilities(logits, temperature) {
  if (temperature >= LOWEST_TEMPERATURE) return softmax(logits.map((each) => each / temperature));
  const best = logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
  return logits.map((_, id) => Number(id === best));
}

// Returns a function that draws an id from probabilities (V,) after n characters. The same seed gives the same ids.
export function makeDraw(seed, n) {
  const uniform = makeRandom(seed, n); // never 0: no character of probability 0 is drawn
  return (p) => {
    const share = uniform() * p.reduce((a, b) => a + b);
    let sum = 0;
    return p.findIndex((each) => {
      sum += each;
      return sum >= share;
    });
  };
}
