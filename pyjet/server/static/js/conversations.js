/**
 * The conversations of this browser, each under a name of its own, so that tabs do not overwrite each other's.
 *
 * A conversation is {id, updated (ms), messages}; a message is one of
 *   {role: "user", content}
 *   {role: "tool", callId, name, content}
 *   {role: "assistant", ...}, see answer.js
 */

import { randomName } from "./dom.js";

const START = "chat:";
const TITLE_LENGTH = 60;

export class Conversations {
  #storage;
  #known = new Map();

  constructor(storage) {
    this.#storage = storage;
    for (const name of storage.names(START)) this.#load(name);
  }

  /** All that say something, the latest first. */
  all() {
    return [...this.#known.values()].filter((one) => one.messages.length).sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#known.get(id);
  }

  /** A new conversation; it is kept once it is saved. */
  create() {
    const conversation = { id: randomName(), updated: Date.now(), messages: [] };
    this.#known.set(conversation.id, conversation);
    return conversation;
  }

  save(conversation) {
    if (!this.#known.has(conversation.id)) return; // it was deleted while it was being answered
    conversation.updated = Date.now();
    this.#storage.write(START + conversation.id, conversation);
  }

  remove(id) {
    this.#known.delete(id);
    this.#storage.remove(START + id);
  }

  /** The id of the conversation that is stored under a name; null when the name is that of something else. */
  idOf(name) {
    return name.startsWith(START) ? name.slice(START.length) : null;
  }

  /** Take over what another tab did to a conversation. */
  reload(id) {
    this.#known.delete(id);
    this.#load(START + id);
  }

  #load(name) {
    const value = this.#storage.read(name);
    const isWhole = value?.id === this.idOf(name) && Array.isArray(value.messages);
    if (isWhole && value.messages.every(isMessage)) this.#known.set(value.id, value);
  }
}

function isMessage(message) {
  if (typeof message?.content !== "string") return false;
  if (message.role === "user" || message.role === "tool") return true;
  return message.role === "assistant" && typeof message.reasoning === "string" && Array.isArray(message.calls);
}

/** What a conversation is called: the start of its first message. */
export function title(conversation) {
  const text = conversation.messages.find((message) => message.role === "user")?.content.trim() ?? "";
  const line = text.split("\n", 1)[0];
  return (line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH)}…` : line) || "Empty conversation";
}
