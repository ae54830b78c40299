// What heads attend to on a text, as experiments/heads/measures.py defines it.

const LEAST = 0.2; // a head has a role if its excess over uniform attention is this share of the possible excess
const ROLES = [
  "itself",
  "previous character",
  "same character before",
  "what followed it before",
  "start of line",
  "speaker's name",
];

// Returns the role of each of n heads in words, and the figure that shows it, given their lower triangles.
export function rolesOn(ids, characters, n, weights) {
  const T = ids.length;
  const size = (T * (T + 1)) / 2;
  const text = ids.map((id) => characters[id]);
  const targets = targetsOf(ids, text);
  return [...Array(n).keys()].map((h) => {
    const triangle = weights.subarray(h * size, (h + 1) * size);
    const rows = ids.map((_, t) => triangle.subarray((t * (t + 1)) / 2, ((t + 1) * (t + 2)) / 2));
    return roleOf(rows, targets);
  });
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// Returns the role of a head and its figure, given its weights (t + 1,) at each position t and the targets of each role.
function roleOf(rows, targets) {
  let best = 0;
  let role = null;
  targets.forEach((target, i) => {
    const places = [...rows.keys()].filter((t) => t > 0 && target[t].length);
    const mean = (share) => sum(places.map(share)) / places.length;
    const weight = mean((t) => sum(target[t].map((s) => rows[t][s])));
    const uniform = mean((t) => target[t].length / (t + 1));
    const excess = (weight - uniform) / (1 - uniform);
    if (excess >= LEAST && excess > best) {
      best = excess;
      role = [ROLES[i], weight.toFixed(2)];
    }
  });
  if (role) return role;
  const bits = rows.slice(1).map((row) => row.reduce((total, p) => total - (p && p * Math.log2(p)), 0));
  return ["no fixed target", `${(sum(bits) / (bits.length || 1)).toFixed(1)} bits`];
}

// Returns, for each role and each position, the positions that are its target.
function targetsOf(ids, text) {
  const spelled = text.join("");
  const before = (t) => [...Array(t).keys()];
  return [
    ids.map((_, t) => [t]),
    ids.map((_, t) => (t ? [t - 1] : [])),
    ids.map((id, t) => before(t).filter((s) => ids[s] === id)),
    ids.map((id, t) => before(t).filter((s) => s > 0 && ids[s - 1] === id)),
    newestMatch(/\n(?=([^]))/dg, spelled, text),
    newestMatch(/\n\n([^\n:]+):\n/dg, spelled, text),
  ];
}

// Returns, for each position, those in the group of a pattern's newest match before it.
function newestMatch(pattern, spelled, text) {
  const found = text.map(() => []);
  const placeOf = (unit) => [...spelled.slice(0, unit)].length; // of a character
  for (const { indices } of spelled.matchAll(pattern)) {
    const [whole, group] = indices;
    const [first, last] = group.map(placeOf);
    const places = Array.from({ length: last - first }, (_, i) => first + i);
    for (let t = placeOf(whole[1]); t < found.length; t++) found[t] = places;
  }
  return found;
}
