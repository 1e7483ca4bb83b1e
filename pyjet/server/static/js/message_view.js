/** One message of a conversation as an article. */

import { isThinking } from "./answer.js";
import { button, copyButton, element } from "./dom.js";
import { MarkdownView } from "./markdown_view.js";
import { timingFacts } from "./numbers.js";
import { callNode, resultForm, resultNode } from "./tool_calls.js";

const NOTES = {
  stopped: "You stopped this answer.",
  lost: "The connection was lost; the rest of this answer is missing.",
};

/**
 * A view {node, update(isLast)} of a message. `actions`: what its buttons do: edit(message), retry(message),
 * answerNow(message) and sendResults(message, texts).
 */
export function messageView(message, settings, actions) {
  if (message.role === "user") return userView(message, actions);
  if (message.role === "tool") return toolView(message);
  return new AnswerView(message, settings, actions);
}

function userView(message, actions) {
  const copy = copyButton(() => message.content, "Copy this message");
  const edit = button("Edit", () => actions.edit(message));
  const head = header("You", copy, edit);
  const node = element("article", { className: "message user", "aria-label": "Your message" }, head);
  node.append(element("div", { className: "text" }, message.content));
  return { node, update() {} };
}

function toolView(message) {
  return { node: element("article", { className: "message" }, resultNode(message)), update() {} };
}

function header(name, ...buttons) {
  return element("header", {}, element("span", {}, name), element("span", { className: "actions" }, ...buttons));
}

class AnswerView {
  #message;
  #settings;
  #actions;
  #markdown = new MarkdownView();
  #thoughts = element("div");
  #reasoning;
  #reasoningTitle = element("span");
  #answerNow;
  #calls = element("div");
  #end = element("div"); // failures, notes, results
  #stats = element("p", { className: "stats quiet" });
  #shownCalls = "";
  #shownEnd = "";

  constructor(message, settings, actions) {
    this.#message = message;
    this.#settings = settings;
    this.#actions = actions;
    this.#answerNow = button("Answer now", () => actions.answerNow(message));
    const isOpen = message.state === "running" && settings.get("showThoughtInProgress");
    const summary = element("summary", {}, this.#reasoningTitle);
    this.#reasoning = element("details", { className: "reasoning", open: isOpen }, summary, this.#thoughts);
    const copy = copyButton(() => message.content, "Copy this answer");
    const retry = button("Try again", () => actions.retry(message));
    const head = header("Answer", copy, retry);
    this.node = element("article", { className: "message assistant", "aria-label": "Answer" }, head);
    this.node.append(this.#reasoning, this.#answerNow, this.#markdown.node, this.#calls, this.#end, this.#stats);
  }

  /** Show the message as it is now. `isLast`: nothing follows it. */
  update(isLast) {
    const message = this.#message;
    this.node.setAttribute("aria-busy", String(message.state === "running"));
    this.#updateReasoning();
    this.#markdown.update(message.content);
    this.#updateCalls();
    this.#updateEnd(isLast);
    const shows = this.#settings.get("showMessageStats");
    this.#stats.textContent = shows ? timingFacts(message.timings).join(" · ") : "";
  }

  #updateReasoning() {
    const message = this.#message;
    this.#reasoning.hidden = !message.reasoning;
    this.#reasoningTitle.textContent = isThinking(message) ? "Thinking…" : "Thoughts";
    this.#answerNow.hidden = !isThinking(message);
    if (this.#thoughts.textContent !== message.reasoning) this.#thoughts.textContent = message.reasoning;
  }

  #updateCalls() {
    const shown = JSON.stringify(this.#message.calls);
    if (shown === this.#shownCalls) return;
    this.#shownCalls = shown;
    this.#calls.replaceChildren(...this.#message.calls.map(callNode));
  }

  #updateEnd(isLast) {
    const { state, finish, failure } = this.#message;
    const shown = JSON.stringify([state, finish, failure, isLast]);
    if (shown === this.#shownEnd) return; // the fields for results keep what was written into them
    this.#shownEnd = shown;
    this.#end.replaceChildren(...this.#endNodes(isLast));
  }

  #endNodes(isLast) {
    const message = this.#message;
    if (message.state === "running") return [];
    if (message.state === "failed") return [failureNode(message.failure)];
    const cut = message.finish === "length" ? "The answer ended at its longest allowed length." : "";
    const note = NOTES[message.state] ?? cut;
    const nodes = note ? [element("p", { className: "note" }, note)] : [];
    if (isLast && message.state === "done" && message.calls.length) {
      nodes.push(resultForm(message.calls, (texts) => this.#actions.sendResults(message, texts)));
    }
    return nodes;
  }
}

function failureNode(failure) {
  const head = element("strong", {}, failure.title);
  return element("div", { className: "failure", role: "alert" }, head, element("p", {}, failure.text));
}
