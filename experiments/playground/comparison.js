// What two models that were trained side by side show, and how much of it may be chance.

// Standard deviation, over six seeds, of the difference between two numbers of heads in nats, after 30 s of tiny
// Shakespeare: 0.008 for 1 and 4 heads, 0.011 for 4 and 8.
const SEEDS_DIFFER = 0.009;
const FEWEST_SEEDS = 3;
const MOST_SEEDS = 100; // that a person might train

// Returns how many seeds it takes to tell the mean of differences between two models from chance.
function seedsNeeded(differences) {
  const n = differences.length;
  const mean = differences.reduce((a, b) => a + b) / n;
  const squares = differences.reduce((total, each) => total + (each - mean) ** 2, 0);
  const deviation = n > 1 ? Math.sqrt(squares / (n - 1)) : SEEDS_DIFFER;
  return Math.max(FEWEST_SEEDS, Math.ceil(((2 * deviation) / mean) ** 2));
}

// Says what the differences between two models prove.
function conclusionOf(differences) {
  const n = differences.length;
  const needed = seedsNeeded(differences);
  const many = needed > MOST_SEEDS ? `More than ${MOST_SEEDS}` : `About ${needed}`;
  if (n >= needed) return `${n} seeds agree well enough: this difference is hardly chance.`;
  const proof = n === 1 ? "One seed proves little" : `${n} seeds do not prove it yet`;
  return `${proof}: the loss also changes with the seed. ${many} seeds would tell this difference from chance.`;
}

// Shows a table of two models. names: of the models. losses: for each seed, what `evaluate` in trainer.js returned.
function showComparison(root, names, losses) {
  const signed = (x) => `${x < 0 ? "\u2212" : "+"}${Math.abs(x).toFixed(4)}`;
  const differences = [...losses.values()].map(([a, b]) => b.loss - a.loss);
  const cellsOf = (tag, contents) => contents.map((each) => make(tag, each));
  const rows = [...losses].map(([seed, [a, b]]) =>
    make("tr", cellsOf("td", [seed, a.loss.toFixed(4), b.loss.toFixed(4), signed(b.loss - a.loss)])),
  );
  const head = make("thead", make("tr", cellsOf("th", ["Seed", ...names, "Difference"])));
  const table = make("table", [make("caption", "Loss on the held-out text"), head, make("tbody", rows)]);
  root.replaceChildren(table, make("p", conclusionOf(differences)));
}
