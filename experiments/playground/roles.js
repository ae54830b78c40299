"use strict";
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
function rolesOn(ids, characters, n, weights) {
  const T = ids.length,
    size = (T * (T + 1)) / 2,
    targets = targetsOf(
      ids,
      ids.map((id) => characters[id]),
    );
  return Array.from({ length: n }, (_, h) => {
    const row = (t) => weights.subarray(h * size + (t * (t + 1)) / 2, h * size + ((t + 1) * (t + 2)) / 2);
    let best = -1,
      role = null;
    targets.forEach((of, i) => {
      const places = of.map((target, t) => [t, target]).filter(([t, target]) => t && target.length);
      const mean = (share) => places.reduce((sum, [t, target]) => sum + share(t, target), 0) / places.length;
      const weight = mean((t, target) => target.reduce((sum, s) => sum + row(t)[s], 0));
      const uniform = mean((t, target) => target.length / (t + 1)),
        excess = (weight - uniform) / (1 - uniform);
      if (excess >= LEAST && excess > best) [best, role] = [excess, [ROLES[i], weight.toFixed(2)]];
    });
    if (role) return role;
    const bits = ids.map((_, t) => (t ? row(t).reduce((sum, p) => sum - (p && p * Math.log2(p)), 0) : 0));
    return ["no fixed target", `${(bits.reduce((a, b) => a + b) / (T - 1 || 1)).toFixed(1)} bits`];
  });
}

// Returns, for each role and each position, the positions that are its target.
function targetsOf(ids, text) {
  const spelled = text.join(""),
    before = (t) => [...Array(t).keys()],
    same = (t) => before(t).filter((s) => ids[s] === ids[t]);
  return [
    ids.map((_, t) => [t]),
    ids.map((_, t) => (t ? [t - 1] : [])),
    ids.map((_, t) => same(t)),
    ids.map((_, t) =>
      same(t)
        .map((s) => s + 1)
        .filter((s) => s < t),
    ),
    newestMatch(/\n(?=([^]))/dg, spelled, text),
    newestMatch(/\n\n([^\n:]+):\n/dg, spelled, text),
  ];
}

// Returns, for each position, those in the group of a pattern's newest match before it.
function newestMatch(pattern, spelled, text) {
  const found = text.map(() => []),
    place = (unit) => [...spelled.slice(0, unit)].length; // of a character
  for (const {
    indices: [whole, group],
  } of spelled.matchAll(pattern)) {
    const [first, last] = group.map(place),
      end = place(whole[1]);
    for (let t = end; t < found.length; t++) found[t] = Array.from({ length: last - first }, (_, i) => first + i);
  }
  return found;
}
