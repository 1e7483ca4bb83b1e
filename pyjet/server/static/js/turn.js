/** One answer being made: asked for, followed, picked up again after a lost connection or a reload, or stopped. */

import { addEvent } from "./answer.js";
import { BrokenStream, events } from "./event_stream.js";
import { explain } from "./explain.js";

const ATTEMPTS = 5;
const WAIT_MS = 500;

/** The rest of an answer cannot be had. */
class AnswerLost extends Error {}

export class Turn {
  #api;
  #message;
  #onChange;
  #abort = new AbortController();
  #isOpen = false;

  /** `onChange()`: the message has changed. */
  constructor(api, message, onChange) {
    this.#api = api;
    this.#message = message;
    this.#onChange = onChange;
  }

  /** Send the request and follow the answer to its end. What goes wrong is in the message then. */
  run(body) {
    // The server keeps what it sends under this name, and goes on when the page is left.
    const headers = { "X-Conversation-Id": this.#message.stream.id };
    return this.#settle(async () => {
      const isComplete = await this.#follow("v1/chat/completions", { body, headers });
      if (!isComplete) await this.#pickUp();
    });
  }

  /** Follow an answer that an earlier visit asked for. */
  resume() {
    return this.#settle(() => this.#pickUp());
  }

  /** End the answer here. */
  stop() {
    this.#message.state = "stopped";
    this.#onChange();
    if (this.#isOpen) this.#leave();
  }

  /** Make the model stop thinking and answer. Raises ApiError. */
  async answerNow() {
    const body = { id: this.#message.completion, action: "reasoning_end" };
    await this.#api.json("v1/chat/completions/control", { body });
  }

  get #isRunning() {
    return this.#message.state === "running";
  }

  async #settle(work) {
    const message = this.#message;
    try {
      await work();
      if (this.#isRunning) message.state = "done";
    } catch (error) {
      if (this.#isRunning && error instanceof AnswerLost) message.state = "lost";
      if (this.#isRunning) {
        message.state = "failed";
        message.failure = explain(error);
      }
    }
    this.#onChange();
  }

  /** Read a stream to its end; whether that was the end of the answer. */
  async #follow(path, options = {}) {
    // Stopping aborts nothing before the headers are here: the server would not notice, and go on.
    const response = await this.#api.open(path, { ...options, signal: this.#abort.signal });
    this.#isOpen = true;
    if (!this.#isRunning) this.#leave();
    try {
      await this.#read(response.body);
    } catch (error) {
      if (!(error instanceof BrokenStream)) throw error;
    }
    return Boolean(this.#message.finish) || !this.#isRunning;
  }

  async #read(body) {
    const { stream } = this.#message;
    const start = stream.offset;
    for await (const { data, offset } of events(body)) {
      if (!this.#isRunning) return;
      if (data !== null && data !== "[DONE]") addEvent(this.#message, JSON.parse(data));
      stream.offset = start + offset;
      this.#onChange();
    }
  }

  async #pickUp() {
    const { stream } = this.#message;
    for (let attempt = 0; attempt < ATTEMPTS && this.#isRunning; attempt++) {
      if (attempt) await new Promise((done) => setTimeout(done, WAIT_MS * attempt));
      try {
        if (await this.#follow(`${this.#path()}&from=${stream.offset}`)) return;
      } catch (error) {
        // 400: what comes next is no longer kept. 404: nothing is; but a new answer may not have begun yet.
        if (error.status === 400 || (error.status === 404 && stream.offset)) break;
        if (![0, 404, 503].includes(error.status)) throw error;
      }
    }
    if (this.#isRunning) throw new AnswerLost();
  }

  /** Tell the server that nobody wants the rest, and stop reading. */
  #leave() {
    this.#api.open(this.#path(), { method: "DELETE", keepalive: true }).catch(() => {});
    this.#abort.abort();
  }

  #path() {
    return `v1/stream?conv_id=${this.#message.stream.id}`;
  }
}
