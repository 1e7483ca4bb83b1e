/** The answers that are being made, one per conversation at most, and that they are kept while they grow. */

import { newAnswer } from "./answer.js";
import { requestBody } from "./request.js";
import { Turn } from "./turn.js";

const SAVE_MS = 500;

export class Answers {
  #api;
  #conversations;
  #settings;
  #onChange;
  #onEnd;
  #running = new Map(); // Turn by conversation
  #saves = new Map(); // timer by conversation

  /** `onChange(conversation)`; `onEnd(conversation, message)` once for each answer. */
  constructor(api, conversations, settings, { onChange, onEnd }) {
    this.#api = api;
    this.#conversations = conversations;
    this.#settings = settings;
    this.#onChange = onChange;
    this.#onEnd = onEnd;
  }

  /** Whether this page makes an answer to it. */
  isRunning(conversation) {
    return this.#running.has(conversation);
  }

  /** Ask for an answer to the messages of a conversation. */
  start(conversation, model) {
    const body = requestBody(conversation.messages, this.#settings, model);
    const message = newAnswer();
    conversation.messages.push(message);
    this.#save(conversation);
    return this.#run(conversation, message, (turn) => turn.run(body));
  }

  /** Go on with the answers that were being made when the page was left. */
  resumeAll() {
    for (const conversation of this.#conversations.all()) {
      const message = conversation.messages.at(-1);
      const isOpen = message.state === "running" && !this.isRunning(conversation);
      if (isOpen) this.#run(conversation, message, (turn) => turn.resume());
    }
  }

  stop(conversation) {
    this.#running.get(conversation)?.stop();
  }

  /** Make the model stop thinking. Raises ApiError. */
  async answerNow(conversation) {
    await this.#running.get(conversation)?.answerNow();
  }

  async #run(conversation, message, begin) {
    const turn = new Turn(this.#api, message, () => this.#changed(conversation));
    this.#running.set(conversation, turn);
    this.#changed(conversation);
    await begin(turn);
    if (this.#running.get(conversation) === turn) this.#running.delete(conversation);
    this.#save(conversation);
    this.#onEnd(conversation, message);
  }

  #changed(conversation) {
    if (!this.#saves.has(conversation)) {
      this.#saves.set(conversation, setTimeout(() => this.#save(conversation), SAVE_MS));
    }
    this.#onChange(conversation);
  }

  #save(conversation) {
    clearTimeout(this.#saves.get(conversation));
    this.#saves.delete(conversation);
    this.#conversations.save(conversation);
  }
}
