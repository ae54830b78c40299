// Unpacks what weights.py has packed, and packs what was trained here.

const NUMBERS_OF = { float32: Float32Array, float16: Uint16Array, uint16: Uint16Array, int8: Int8Array };

// Returns the weights of a model by their names, given `tensors` of its header and the text in base64.
export async function unpack(tensors, text) {
  const content = await unzipped(text);
  const halves = Float32Array.from({ length: 1 << 16 }, (_, bits) => fromHalf(bits)); // a table is ten times as fast
  const weights = {};
  for (const [name, { offset, shape, dtype }] of Object.entries(tensors)) {
    const size = shape.reduce((a, b) => a * b, 1) * NUMBERS_OF[dtype].BYTES_PER_ELEMENT;
    const numbers = new NUMBERS_OF[dtype](content.slice(offset, offset + size));
    weights[name] = dtype === "float16" ? Float32Array.from(numbers, (bits) => halves[bits]) : numbers;
  }
  return weights;
}

// Returns `tensors` of the header of a model that was trained here, given its weights, all of float32, and its width.
export function layoutOf(weights, C) {
  const tensors = {};
  let offset = 0;
  for (const name of Object.keys(weights).sort()) {
    const n = weights[name].length;
    const columns = name.endsWith("mlp.proj.weight") ? 4 * C : C;
    const shape = name.endsWith("log_scale") ? [n] : [n / columns, columns];
    tensors[name] = { offset, shape, dtype: "float32" };
    offset += weights[name].byteLength;
  }
  return tensors;
}

// Returns the bytes of weights in the order of their header.
export function joined(tensors, weights) {
  return new Blob(Object.keys(tensors).map((name) => weights[name]));
}

// Returns the bytes of a text in base64 and gzip.
export async function unzipped(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// Returns the bytes of a Blob in gzip and base64.
export async function zipped(blob) {
  const packed = await new Response(blob.stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  return btoa(Array.from(new Uint8Array(packed), (byte) => String.fromCharCode(byte)).join(""));
}

// Returns the value of a float16, given its bits.
function fromHalf(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}
