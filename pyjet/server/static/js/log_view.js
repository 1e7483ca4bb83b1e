/** The messages of the conversation that is open. */

import { element } from "./dom.js";
import { messageView } from "./message_view.js";

const NEAR_END = 60; // pixels

export class LogView {
  #node;
  #settings;
  #actions;
  #conversation = null;
  #views = new Map(); // by message
  #isDue = false;

  constructor(node, settings, actions) {
    this.#node = node;
    this.#settings = settings;
    this.#actions = actions;
  }

  /** Show a conversation from its end. */
  show(conversation) {
    this.#conversation = conversation;
    this.#views.clear();
    this.#draw();
    this.scrollToEnd();
  }

  /** Draw again before the next frame, because the conversation has changed. */
  refresh() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      const { scrollHeight, scrollTop, clientHeight } = this.#node;
      const follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
      this.#draw();
      if (follows) this.scrollToEnd();
    });
  }

  scrollToEnd() {
    this.#node.scrollTop = this.#node.scrollHeight;
  }

  #draw() {
    const { messages } = this.#conversation;
    const views = messages.map((message) => this.#view(message));
    this.#views = new Map(messages.map((message, i) => [message, views[i]]));
    const nodes = views.length ? views.map((view) => view.node) : [welcome()];
    const shown = this.#node.children;
    const isSame = nodes.length === shown.length && nodes.every((node, i) => node === shown[i]);
    if (!isSame) this.#node.replaceChildren(...nodes);
    views.forEach((view, i) => view.update(i === views.length - 1));
  }

  #view(message) {
    return this.#views.get(message) ?? messageView(message, this.#settings, this.#actions);
  }
}

function welcome() {
  return element("p", { className: "welcome" }, "Write a message to begin. Conversations stay in this browser.");
}
