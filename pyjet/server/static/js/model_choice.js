/** The list of models: the server's model and its profiles. */

import { element } from "./dom.js";
import { modelFacts } from "./numbers.js";

const NAME = "model";

export class ModelChoice {
  #select = document.getElementById("model");
  #facts = document.getElementById("model-facts");
  #storage;
  #models = [];

  constructor(storage) {
    this.#storage = storage;
    this.#select.addEventListener("change", () => {
      storage.write(NAME, this.#select.value);
      this.#showFacts();
    });
  }

  /** Offer these entries of `/v1/models`; the one chosen last stays chosen when it is among them. */
  update(models) {
    if (models === this.#models) return;
    this.#models = models;
    this.#select.replaceChildren(...models.map((one) => element("option", { value: one.id }, one.id)));
    const last = this.#storage.read(NAME);
    if (models.some((one) => one.id === last)) this.#select.value = last;
    this.#showFacts();
  }

  /** The chosen entry; undefined before there are any. */
  get current() {
    return this.#models.find((one) => one.id === this.#select.value);
  }

  #showFacts() {
    this.#facts.textContent = modelFacts(this.current?.meta);
  }
}
