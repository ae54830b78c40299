// Keeps a model that was trained here: as a checkpoint of this project, or as this page with the model in it.

import { vocabularyOf } from "../compute/vocabulary.js";
import { joined, layoutOf, zipped } from "../compute/weights.js";
import { make } from "./elements.js";

const FORMAT = "8"; // of the files that training/runs/checkpoint.py reads
const NO_CHECKSUM = "0".repeat(64); // in place of the checksum while it is computed

export const titleOf = ({ n_head: H }) => `${H} head${H > 1 ? "s" : ""}`;

// Returns what `Model` takes of a model that was trained here; see `describe` in models.py. text: its name, its
// characters by their ids. config: a ModelConfig. weights: Float32Arrays by their names. points: its losses over characters.
export function stateOf({ name, text, config, weights, points, lookAlikes }) {
  const { n_layer, n_head, n_embd } = config;
  const layers = Array(n_layer).fill({ n_head, n_kv_head: n_head, head_size: n_embd / n_head });
  return {
    name,
    about: `It learned to predict the next character of ${text.name}.`,
    header: {
      config: { ...config, layers },
      tensors: layoutOf(weights, n_embd),
      ...vocabularyOf(text.characters, lookAlikes),
    },
    weights,
    characters: text.characters,
    points,
    stop: null,
  };
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Returns the bytes of a checkpoint: see training/runs/checkpoint.py. settings: a Config. corpus: the name, the characters
// by their ids, and the bytes of the text. progress: see Progress in training/state.py. weights: Float32Arrays by their
// names.
export async function checkpointOf({ settings, corpus, progress, weights }) {
  const { characters } = corpus;
  const data = { ...settings.data, corpus: corpus.name };
  const train = { ...settings.train, max_steps: Math.max(progress.step, 1) };
  const encoder = new TextEncoder();
  const digest = await sha256(corpus.bytes);
  const ofCharacters = (await sha256(encoder.encode(characters))).slice(0, 8);
  const origin = {
    text: digest.slice(0, 16),
    vocabulary: `${[...characters].length} characters (${ofCharacters})`,
    ancestor: null,
    arithmetic: "float32 in a browser",
    earlier: {},
  };
  const metadata = {
    sha256: NO_CHECKSUM,
    format: FORMAT,
    settings: JSON.stringify({ ...settings, data, train }),
    vocabulary: JSON.stringify(characters),
    corpus: JSON.stringify({ name: corpus.name, digest, n_train: null }),
    origin: JSON.stringify(origin),
    progress: JSON.stringify(progress),
  };
  const tensors = layoutOf(weights, settings.model.n_embd);
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

// Returns this page with a model in place of its own ones. source: a clone of the document's element, made before scripts
// changed it. state: see `stateOf`.
export async function pageOf(source, state) {
  const page = source.cloneNode(true);
  const strangers = ":scope > :not(head, body), :scope > * > :not([data-own])"; // such as those of an extension
  page.querySelectorAll(strangers).forEach((each) => each.remove());
  for (const own of page.children) own.getAttributeNames().forEach((name) => own.removeAttribute(name));
  const { config, tensors } = state.header;
  const kept = { ...state, header: { config, tensors }, weights: await zipped(joined(tensors, state.weights)) };
  const json = JSON.stringify([kept]).replaceAll("<", "\\u003c"); // no text of a model ends the script
  page.querySelector("#models-of-this-page").textContent = json;
  page.querySelector("title").textContent = page.querySelector("h1").textContent = state.name;
  page.querySelector("#promise").textContent = `${state.about} Nothing leaves your computer.`;
  page.querySelector("#warning")?.remove(); // it is on two models
  return `<!doctype html>\n<html lang="en">${page.innerHTML}</html>\n`;
}

export function download(name, content) {
  make("a", "", { href: URL.createObjectURL(new Blob([content])), download: name }).click();
}
