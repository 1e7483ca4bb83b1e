/** Errors in words that say what happened and what to do. */

import { ApiError } from "./api.js";
import { count } from "./numbers.js";

/** {title, text} for a user to read. */
export function explain(error) {
  if (!(error instanceof ApiError)) {
    return { title: "This page failed", text: `Reload it and try again. (${error.name}: ${error.message})` };
  }
  if (error.type === "exceed_context_size_error") return contextExceeded(error.fields);
  return BY_STATUS[error.status]?.(error) ?? refused(error);
}

function contextExceeded({ n_prompt_tokens: needed, n_ctx: room }) {
  return {
    title: "The conversation is too long",
    text:
      `It has ${count(needed)} tokens, and the server has room for ${count(room)}. Start a new conversation, edit an ` +
      "earlier message to drop what follows it, or start the server with a larger --ctx-size.",
  };
}

const BY_STATUS = {
  0: () => ({
    title: "The server does not answer",
    text: "It may have been stopped, or the network is down. The page keeps looking for it; then try again.",
  }),
  401: () => ({
    title: "The API key is missing or wrong",
    text: "Enter one of the keys that the server was started with (--api-key), then try again.",
  }),
  404: () => ({
    title: "The server does not know this address",
    text: "The page may be older than the server. Reload it and try again.",
  }),
  503: (error) =>
    isLoading(error)
      ? { title: "The model is still loading", text: "Try again as soon as the page says that it is ready." }
      : { title: "The server cannot answer now", text: error.message },
};

function refused(error) {
  const title = error.status >= 500 ? "The server failed" : "The server did not accept the request";
  return { title, text: `${error.message} (status ${error.status})` };
}

/** Whether the server said that its model is being loaded. */
export function isLoading(error) {
  return error.status === 503 && /^loading model$/i.test(error.message);
}
