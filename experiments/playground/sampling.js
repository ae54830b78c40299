// Drawing a character from logits, as model/generate.py does; only the random numbers are others.

const LOWEST_TEMPERATURE = 1e-6; // a lower one counts as 0
const ROUNDING = 1e-6; // so that 0.5 + 0.3 reaches 0.8

// Returns the probability of each character (V,) after the filters of `Sampling`, in their order.
function probabilities(logits, { temperature = 1, topK = null, topP = 1, minP = 0 } = {}) {
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]); // the likeliest first
  if (temperature < LOWEST_TEMPERATURE) return logits.map((_, i) => Number(i === order[0]));
  const lowest = logits[order[Math.min(topK ?? Infinity, order.length) - 1]];
  const p = softmax(logits.map((each) => (each < lowest ? -Infinity : each / temperature)));
  const floor = minP * p[order[0]];
  const kept = new Float64Array(p.length);
  let likelier = 0; // sum of the probabilities before
  for (const i of order) {
    if (i === order[0] || (likelier < topP - ROUNDING && p[i] >= floor)) kept[i] = p[i];
    likelier += p[i];
  }
  const sum = kept.reduce((a, b) => a + b);
  return kept.map((each) => each / sum);
}

// Returns a function that draws an id from probabilities (V,) after n characters. The same seed gives the same ids.
function makeDraw(seed, n) {
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
