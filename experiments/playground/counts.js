// What followed the last characters in the training text, as model/counts.py counts it.

const LONGEST = 10; // characters before the next one
const BACKOFF = 4;
const NETWORK_WEIGHT = 0.65; // weight of the logits of the network
const COUNTS_WEIGHT = 0.2; // and of the logarithms of the counted probabilities

class Counts {
  // text: ids plus 1, and 0 after its end. V: the size of the vocabulary.
  constructor(text, V) {
    const end = text.indexOf(0);
    this.text = end < 0 ? text : text.subarray(0, end);
    this.longest = Math.min(LONGEST, Math.floor(62 / Math.log2(V + 1)));
    this.places = this.sorted(V);
    this.shares = this.followers(0, this.places.length, V).map((c) => (c + 1) / (this.places.length + V)); // (V,)
  }

  // Returns the places in the text that have a whole context, sorted by the character before, then the one before that,
  // and so on, so that all places after the same characters are neighbours (radix sort).
  sorted(V) {
    const { text, longest } = this;
    let places = Int32Array.from({ length: Math.max(0, text.length - longest) }, (_, i) => i + longest);
    for (let k = longest; k > 0; k--) {
      const starts = new Int32Array(V + 2); // of the places after each symbol
      for (const place of places) starts[text[place - k] + 1]++;
      for (let symbol = 1; symbol < starts.length; symbol++) starts[symbol] += starts[symbol - 1];
      const next = new Int32Array(places.length);
      for (const place of places) next[starts[text[place - k]]++] = place;
      places = next;
    }
    return places;
  }

  // Returns how often each character stands at places first to last - 1 of the order: (V,).
  followers(first, last, V) {
    const counts = new Float64Array(V);
    for (let i = first; i < last; i++) counts[this.text[this.places[i]] - 1]++;
    return counts;
  }

  // Returns the first of these places at which the character k before is not below a symbol.
  search(first, last, k, symbol) {
    while (first < last) {
      const middle = (first + last) >> 1;
      if (this.text[this.places[middle] - k] < symbol) first = middle + 1;
      else last = middle;
    }
    return first;
  }

  // Returns the logarithm of the probability of each character (V,) after position t of a window of ids.
  logProbabilities(ids, t) {
    let p = this.shares;
    let [first, last] = [0, this.places.length];
    for (let k = 1; k <= Math.min(this.longest, t + 1); k++) {
      const symbol = ids[t + 1 - k] + 1;
      [first, last] = [this.search(first, last, k, symbol), this.search(first, last, k, symbol + 1)];
      if (first === last) break;
      p = interpolated(this.followers(first, last, p.length), last - first, p);
    }
    return p.map(Math.log);
  }
}

// Returns the probabilities (V,) of a longer n-gram, which each character followed r of c times, and of a shorter one.
function interpolated(r, c, shorter) {
  const left = BACKOFF * r.filter(Boolean).length;
  return shorter.map((each, id) => (r[id] + left * each) / (c + left));
}
