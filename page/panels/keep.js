// Keeping what was trained here: as a page, as a checkpoint for Python, or as a picture.

import { byId, enable, makeButtons, say } from "./elements.js";
import { pictureOf } from "./picture.js";
import { checkpointOf, download, pageOf, titleOf } from "./save.js";

const ASIDE = "If no file appears, open this page in a tab of its own.";

export class Keep {
  // source: see `pageOf`. settings: of configs/page.yaml. runOf(): the run that is kept, if there is one.
  constructor(source, settings, runOf) {
    Object.assign(this, { source, settings, runOf, kept: { now: null, models: new Set() } });
    makeButtons({
      "save-page": () => this.save("html", (...given) => this.page(...given)),
      "save-checkpoint": () => this.save("safetensors", (...given) => this.checkpoint(...given)),
      "save-picture": () => this.save("png", (run) => pictureOf(document.title, run.writes.rows, run.loss.now)),
    });
    addEventListener("beforeunload", (event) => {
      if (this.isUnsaved) event.preventDefault();
    });
  }

  // Whether a model has learned something since it was saved as a page or as a checkpoint.
  get isUnsaved() {
    const run = this.runOf();
    const { now, models } = this.kept;
    return Boolean(run?.now?.characters) && (now !== run.now || models.size < run.configs.length);
  }

  describe() {
    for (const id of ["save-page", "save-checkpoint", "save-picture"]) enable(id, this.runOf()?.now?.characters);
  }

  // Saves a file of the model that is shown, at its best; a picture has its newest samples. contentOf(run, i, best):
  // returns the content of the file.
  async save(ending, contentOf) {
    const run = this.runOf();
    const { now } = run;
    const i = Math.max(0, run.models.indexOf(run.desk.model)); // the first one if a model of the page is shown
    try {
      const best = (await run.weights(true))[i];
      const content = await contentOf(run, i, best);
      const isPicture = ending === "png";
      const { characters } = isPicture ? now : best;
      const name = `gpt-${titleOf(run.configs[i]).replace(" ", "-")}-${characters}.${ending}`;
      download(name, content);
      if (this.kept.now !== now) this.kept = { now, models: new Set() };
      if (!isPicture) this.kept.models.add(i);
      const isEarlier = characters < now.characters;
      const which = isEarlier ? `It is the model at its best, with a loss of ${best.loss.toFixed(3)}. ` : "";
      const use = ending === "safetensors" ? `In the project: python sample.py --checkpoint ${name}. ` : "";
      say(`The browser now saves ${name}. ${which}${use}${ASIDE}`, byId("kept"), false);
    } catch (error) {
      say(error.message, byId("kept"));
    }
  }

  // Returns the page of the best weights of model i, which opens with what it wrote.
  page(run, i, best) {
    const state = { ...run.stateOf(i, best), opening: run.writes.rows.at(-1).texts[i].trim() };
    return pageOf(this.source, state);
  }

  checkpoint(run, i, { step, loss, weights }) {
    const windows = step * this.settings.train.batch_size;
    return checkpointOf({
      settings: { ...this.settings, model: run.configs[i] },
      corpus: run.text,
      progress: { step, windows, elapsed_s: run.now.seconds, best_loss: loss, best_step: step },
      weights,
    });
  }
}
