/** What the server's slots do, looked up every second while the list is open and the page is seen. */

import { element } from "./dom.js";
import { explain } from "./explain.js";
import { count } from "./numbers.js";

const EVERY_MS = 1000;

export class SlotsView {
  #details = document.getElementById("slots");
  #body = document.getElementById("slots-body");
  #api;
  #timer = null;

  constructor(api) {
    this.#api = api;
    this.#details.addEventListener("toggle", () => this.#look());
    document.addEventListener("visibilitychange", () => this.#look());
  }

  /** Leave the list out when the server does not offer it. */
  setOffered(isOffered) {
    this.#details.hidden = !isOffered;
  }

  async #look() {
    clearTimeout(this.#timer);
    if (!this.#details.open || document.hidden) return;
    try {
      this.#body.replaceChildren(element("ul", {}, ...(await this.#api.json("slots")).map(slotNode)));
    } catch (error) {
      this.#body.replaceChildren(element("p", { className: "quiet" }, explain(error).title));
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), EVERY_MS);
  }
}

function slotNode(slot) {
  const { n_prompt_tokens: used = 0, n_ctx: room } = slot;
  const label = `Slot ${slot.id}, share of the context used`;
  const bar = element("progress", { max: room, value: used, "aria-label": label });
  return element("li", {}, `${slot.id}: ${activity(slot)} · ${count(used)} of ${count(room)}`, bar);
}

function activity(slot) {
  if (!slot.is_processing) return "free";
  const made = slot.next_token?.[0]?.n_decoded ?? 0;
  if (made) return `writes, ${count(made)} tokens so far`;
  return `reads a prompt, ${count(slot.n_prompt_tokens ?? 0)} tokens so far`;
}
