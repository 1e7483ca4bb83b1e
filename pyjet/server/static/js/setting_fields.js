/**
 * What can be set. Fields of the request bear its names; the others those that llama-server's --ui-config files use.
 *
 * kind: "number", "whole", "text", "json" (a JSON value as text), "choice" or "check". `standard`: the value of a
 * setting that was never made; without one it is absent, and the server decides.
 */

const SAMPLING = [
  { name: "temperature", label: "Temperature", kind: "number", min: 0, hint: "0: always the likeliest token" },
  { name: "top_k", label: "Top k", kind: "whole", min: 0, hint: "0: off" },
  { name: "top_p", label: "Top p", kind: "number", min: 0, max: 1, hint: "1: off" },
  { name: "min_p", label: "Min p", kind: "number", min: 0, max: 1, hint: "0: off" },
  { name: "repeat_penalty", label: "Repeat penalty", kind: "number", min: 0, hint: "1: off" },
  { name: "repeat_last_n", label: "Repeat window", kind: "whole", min: -1, hint: "tokens; -1: the context" },
  { name: "presence_penalty", label: "Presence penalty", kind: "number", hint: "0: off" },
  { name: "frequency_penalty", label: "Frequency penalty", kind: "number", hint: "0: off" },
  { name: "seed", label: "Seed", kind: "whole", min: -1, hint: "-1: a new one each time" },
];

const ANSWER = [
  { name: "max_tokens", label: "Longest answer", kind: "whole", min: -1, hint: "tokens; -1: no limit" },
  {
    name: "thinking",
    label: "Thinking",
    kind: "choice",
    choices: { "": "as the server is set", on: "on", off: "off" },
    standard: "",
    hint: "models that can think",
  },
  {
    name: "reasoning_budget_tokens",
    label: "Thinking budget",
    kind: "whole",
    min: -1,
    hint: "tokens; -1: no limit",
  },
  { name: "systemMessage", label: "System message", kind: "text", wide: true, standard: "" },
];

const DEVELOPER = [
  {
    name: "tools",
    label: "Tools",
    kind: "json",
    wide: true,
    shape: "array",
    standard: "",
    hint: "JSON list in OpenAI's form; the page shows calls and lets you write their results",
  },
  {
    name: "customJson",
    label: "Further fields of the request",
    kind: "json",
    wide: true,
    shape: "object",
    standard: "",
    hint: "JSON object",
  },
];

const PAGE = [
  {
    name: "theme",
    label: "Colours",
    kind: "choice",
    choices: { "": "as the system's", light: "light", dark: "dark" },
    standard: "",
  },
  { name: "sendOnEnter", label: "Enter sends (else Ctrl+Enter)", kind: "check", standard: true },
  { name: "showThoughtInProgress", label: "Show thoughts while they are written", kind: "check", standard: false },
  { name: "showMessageStats", label: "Show speed and tokens of answers", kind: "check", standard: true },
];

export const GROUPS = [
  { title: "Sampling", fields: SAMPLING },
  { title: "Answer", fields: ANSWER },
  { title: "Page", fields: PAGE },
  { title: "For developers", fields: DEVELOPER },
];

export const FIELDS = GROUPS.flatMap((group) => group.fields);

/** Settings that go into a request as they are. */
export const REQUEST_NAMES = [...SAMPLING.map((field) => field.name), "max_tokens", "reasoning_budget_tokens"];

/** What is wrong with the text of a JSON setting, or "". */
export function jsonProblem(field, text) {
  if (!text.trim()) return "";
  try {
    const value = JSON.parse(text);
    const shape = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
    return shape === field.shape ? "" : `This is JSON, but not an ${field.shape}.`;
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}
