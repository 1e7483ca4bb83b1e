/** Calls of tools that the model makes, and the place where a user writes what they gave. */

import { element } from "./dom.js";

/** A call, with its arguments laid out when they are complete JSON. */
export function callNode(call) {
  const text = pretty(call.arguments);
  const summary = element("summary", {}, "Calls ", element("code", {}, call.name));
  return element("details", { className: "call", open: true }, summary, element("pre", {}, element("code", {}, text)));
}

/** A result that was given to the model. */
export function resultNode(message) {
  const summary = element("summary", {}, "Result of ", element("code", {}, message.name));
  return element("details", { className: "result" }, summary, element("pre", {}, message.content));
}

/** Fields for the results of all calls; `onSend(texts)` gets one for each. */
export function resultForm(calls, onSend) {
  const fields = calls.map(() => element("textarea", { rows: 2, required: true, placeholder: "What the tool gives" }));
  const labels = fields.map((field, i) => element("label", {}, `Result of ${calls[i].name}`, field));
  const send = element("button", { type: "submit", className: "primary" }, "Send results");
  const onSubmit = (event) => {
    event.preventDefault();
    onSend(fields.map((field) => field.value));
  };
  const properties = { className: "answers", "aria-label": "Results of the tools", on: { submit: onSubmit } };
  return element("form", properties, ...labels, send);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // not complete yet, or not JSON
  }
}
