/** The list of conversations. */

import { title } from "./conversations.js";
import { button, element } from "./dom.js";

const NARROW = "(max-width: 45rem)"; // as in page.css

export class Sidebar {
  #list = document.getElementById("chats");
  #toggle = document.getElementById("toggle-sidebar");
  #onOpen;
  #onDelete;

  /** `onNew()`, `onOpen(id)`, `onDelete(id)` */
  constructor({ onNew, onOpen, onDelete }) {
    this.#onOpen = onOpen;
    this.#onDelete = onDelete;
    document.getElementById("new-chat").addEventListener("click", () => this.#leave(onNew));
    this.#toggle.addEventListener("click", () => this.#show(document.body.classList.contains("no-side")));
    this.#show(!matchMedia(NARROW).matches);
  }

  /** `isBusy(id)`: whether a conversation is being answered. */
  update(conversations, currentId, isBusy) {
    this.#list.replaceChildren(...conversations.map((one) => this.#item(one, one.id === currentId, isBusy(one.id))));
  }

  #item(conversation, isCurrent, isBusy) {
    const name = title(conversation);
    const open = button(name, () => this.#leave(() => this.#onOpen(conversation.id)), {
      className: isBusy ? "open busy" : "open",
      title: name,
      "aria-current": isCurrent ? "true" : undefined,
      "aria-label": isBusy ? `${name} (is being answered)` : undefined,
    });
    const remove = button("Delete", () => this.#askDelete(conversation.id, name), { "aria-label": `Delete ${name}` });
    return element("li", {}, open, remove);
  }

  #askDelete(id, name) {
    if (confirm(`Delete the conversation "${name}"? It cannot be brought back.`)) this.#onDelete(id);
  }

  /** Do something that the user wants to see the messages for; on small screens the list covers them. */
  #leave(action) {
    if (matchMedia(NARROW).matches) this.#show(false);
    action();
  }

  #show(isShown) {
    document.body.classList.toggle("no-side", !isShown);
    this.#toggle.setAttribute("aria-expanded", String(isShown));
  }
}
