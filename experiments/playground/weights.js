// Unpacks what weights.py has packed.

// Returns the weights of a model by their names, given `tensors` of its header and the text in base64.
async function unpack(tensors, text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = await new Response(stream).arrayBuffer();
  const halves = Float32Array.from({ length: 1 << 16 }, (_, bits) => fromHalf(bits)); // a table is ten times as fast
  const weights = {};
  for (const [name, { offset, shape, dtype }] of Object.entries(tensors)) {
    const Numbers = dtype === "int8" ? Int8Array : Uint16Array;
    const size = shape.reduce((a, b) => a * b, 1) * Numbers.BYTES_PER_ELEMENT;
    const numbers = new Numbers(content.slice(offset, offset + size));
    weights[name] = dtype === "float16" ? Float32Array.from(numbers, (bits) => halves[bits]) : numbers;
  }
  if (weights["ngrams.counts"]) weights["ngrams.rows.weight"] = everyRow(weights);
  return weights;
}

// Returns the value of a float16, given its bits.
function fromHalf(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

// Returns the table of n-grams, in which the rows that the training text never reads are 0.
function everyRow({ "ngrams.rows.weight": stored, "ngrams.scales": scales, "ngrams.counts": counts }) {
  const width = stored.length / scales.length;
  const rows = new Float32Array(counts.length * width);
  let n = 0; // of the row among those that are stored
  for (let row = 0; row < counts.length; row++) {
    if (counts[row] === 0) continue;
    for (let i = 0; i < width; i++) rows[row * width + i] = stored[n * width + i] * scales[n];
    n++;
  }
  return rows;
}
