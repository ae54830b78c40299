// Keeps a model that was trained here: as a checkpoint of this project, or as this page with the model in it.

const FORMAT = "3"; // of the files that training/runs/checkpoint.py reads
const READ_MS = 60_000; // after which a browser has read what it saves
const NO_CHECKSUM = "0".repeat(64); // in place of the checksum while it is computed
// Settings of model/config.py that may differ from those of configs/page.yaml in a model that trains here.
const CHOSEN = ["n_layer", "n_head", "n_embd", "block_size", "logit_softcap"];
const OF_HEADS = ["n_kv_head", "head_size", "layers"];
const UNUSED = ["dropout", "attention", "ngram_rows", "ngram_dropout", "ngram_scale"];

// Returns whether train.js can go on training a model with these settings.
function canTrain(config) {
  const { n_layer, n_head, n_embd, block_size, logit_softcap, layers } = config;
  const D = n_embd / n_head;
  const isPlain = layers.every(
    (layer) => layer.n_head === n_head && layer.n_kv_head === n_head && layer.head_size === D,
  );
  const free = [...CHOSEN, ...OF_HEADS, ...UNUSED];
  const others = Object.keys(config).filter((name) => !free.includes(name));
  const isSame = others.every((name) => String(config[name]) === String(training.settings.model[name]));
  return isSame && isPlain && n_layer > 0 && D % 4 === 0 && block_size % 4 === 0 && logit_softcap > 0;
}

// Returns what `Model` takes of a model that was trained here. name: its title. text: the name of its text. config: its
// ModelConfig. characters: of its vocabulary, by id. opening: a text to begin with. weights: Float32Arrays by their names.
function stateOf({ name, text, config, characters, opening, step, weights, trainLoss, valLoss }) {
  const { n_layer, n_head, n_embd, block_size } = config;
  const layers = Array(n_layer).fill({ n_head, n_kv_head: n_head, head_size: n_embd / n_head });
  const n = Object.values(weights).reduce((sum, { length }) => sum + length, 0);
  return {
    name,
    checkpoints: [{ step, header: { config: { ...config, layers }, tensors: layoutOf(weights, n_embd) }, weights }],
    chosen: 0,
    parts: layers.flatMap((_, l) => Array.from({ length: n_head }, (__, h) => `L${l}H${h}`)),
    characters,
    header: vocabularyOf(characters),
    opening,
    context: block_size,
    about: `A GPT of ${n.toLocaleString("en")} parameters that learned to predict the next character of the text ${text}`,
    no_target: training.no_target,
    train_loss: trainLoss,
    val_loss: valLoss,
  };
}

// Returns the SHA-256 of bytes in hexadecimal.
async function sha256(bytes) {
  if (!crypto.subtle) throw new Error("At this address, the browser makes no checkpoint; save a page and open that.");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Returns the bytes of a checkpoint: see training/runs/checkpoint.py. settings: a Config, whose model may have `layers`,
// too. characters: of the vocabulary, by id. corpus: the name and the bytes of the text. progress: see Progress in
// training/state.py. weights: Float32Arrays by their names. ancestor: of which model training went on, in words.
async function checkpointOf({ settings, characters, corpus, progress, weights, ancestor = null }) {
  const { layers: _, ...model } = settings.model;
  const data = { ...settings.data, corpus: corpus.name };
  const train = { ...settings.train, max_steps: Math.max(progress.step, 1) };
  const encoder = new TextEncoder();
  const digest = await sha256(corpus.bytes);
  const ofCharacters = (await sha256(encoder.encode(characters))).slice(0, 8);
  const origin = {
    text: digest.slice(0, 16),
    vocabulary: `${[...characters].length} characters (${ofCharacters})`,
    ancestor,
    arithmetic: "float32 in a browser",
    earlier: {},
  };
  const inJson = (value) => JSON.stringify(value, (__, each) => (each === Infinity ? undefined : each)); // a default
  const metadata = {
    sha256: NO_CHECKSUM,
    format: FORMAT,
    settings: inJson({ ...settings, model, data, train }),
    vocabulary: inJson(characters),
    corpus: inJson({ name: corpus.name, digest, n_train: null }),
    origin: inJson(origin),
    progress: inJson(progress),
  };
  const tensors = layoutOf(weights, model.n_embd);
  const places = Object.entries(tensors).map(([name, { offset, shape }]) => {
    const place = { dtype: "F32", shape, data_offsets: [offset, offset + weights[name].byteLength] };
    return [`model.${name}`, place];
  });
  const header = encoder.encode(JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(places) }));
  const padding = new Uint8Array(-header.length & 7).fill(0x20); // so that the tensors are aligned
  const size = new BigUint64Array([BigInt(header.length + padding.length)]);
  const file = new Blob([size, header, padding, joined(tensors, weights)]);
  const content = new Uint8Array(await file.arrayBuffer());
  const checksum = encoder.encode(await sha256(content));
  content.set(checksum, 8 + new TextDecoder().decode(header).indexOf(NO_CHECKSUM)); // only ASCII is before it
  return content;
}

// Returns this page with a model in place of its own ones, and with another text to train on. source: a clone of the
// document's element, made before scripts changed it. state: see `stateOf`. corpus: the name and the bytes of the text.
async function pageOf(source, state, corpus) {
  const page = source.cloneNode(true);
  const { step, header, weights } = state.checkpoints[state.chosen];
  const packed = typeof weights === "string" ? weights : await zipped(joined(header.tensors, weights));
  const kept = { ...state, checkpoints: [{ step, header, weights: packed }], chosen: 0, header: {} };
  const json = JSON.stringify([kept]).replaceAll("<", "\\u003c"); // no text of a model ends the script
  page.querySelector("#models-of-this-page").textContent = json;
  const text = page.querySelector("#corpus");
  text.textContent = await zipped(new Blob([corpus.bytes]));
  text.dataset.name = corpus.name;
  page.querySelector(".warning")?.remove(); // it is on two models
  return `<!doctype html>\n${page.outerHTML}\n`;
}

// Lets the browser save a file.
function download(name, content) {
  const link = make("a", "", { href: URL.createObjectURL(new Blob([content])), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), READ_MS);
}
