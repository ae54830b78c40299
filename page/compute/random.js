const STRIDE = 0x6d2b79f5;

// Returns a function that draws uniform numbers from (0, 1]; the same seed gives the same ones (mulberry32). The first n
// are left out.
export function makeRandom(seed, n = 0) {
  let state = (seed + Math.imul(n, STRIDE)) | 0;
  return () => {
    state = (state + STRIDE) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return 1 - ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Returns a function that draws from the normal distribution of mean 0 and standard deviation 1 (Box and Muller, 1958).
export function makeNormal(uniform) {
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}
