/**
 * A message of the assistant, and how the events of a chat completion make it grow. Its fields:
 *
 *   content, reasoning         text
 *   calls                      [{id, name, arguments}], arguments as JSON text
 *   state                      "running", "done", "stopped", "lost" or "failed"
 *   finish                     "stop", "length" or "tool_calls" once it is complete
 *   timings, progress          the server's objects of these names: of the answer, and of reading the prompt
 *   failure                    {title, text} of a failed one
 *   completion                 the server's id of the answer
 *   stream                     {id, offset}: the recorded stream, and how many bytes of it are in the fields above
 */

import { ApiError } from "./api.js";
import { randomName } from "./dom.js";

export function newAnswer() {
  return {
    role: "assistant",
    content: "",
    reasoning: "",
    calls: [],
    state: "running",
    stream: { id: randomName(), offset: 0 },
  };
}

/** Add what one event says. Raises ApiError when it says that the answer failed. */
export function addEvent(message, event) {
  if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message, event.error);
  message.completion = event.id ?? message.completion;
  message.timings = event.timings ?? message.timings;
  message.progress = event.prompt_progress ?? message.progress;
  const choice = event.choices?.[0];
  if (!choice) return;
  addDelta(message, choice.delta ?? {});
  message.finish = choice.finish_reason ?? message.finish;
}

function addDelta(message, delta) {
  message.reasoning += delta.reasoning_content ?? "";
  message.content += delta.content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const call = (message.calls[part.index] ??= { id: "", name: "", arguments: "" });
    call.id += part.id ?? "";
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

/** What the assistant does at the moment, in words. */
export function activity(message) {
  if (message.state !== "running") return "";
  const { progress } = message;
  const hasBegun = message.content || message.reasoning || message.calls.length;
  if (hasBegun) return isThinking(message) ? "Thinking…" : "Answering…";
  if (!progress) return "Waiting for the server…";
  const share = progress.total ? Math.floor((100 * progress.processed) / progress.total) : 0;
  return `Reading the prompt, ${share} %…`;
}

/** Whether the newest text is reasoning. */
export function isThinking(message) {
  return message.state === "running" && message.reasoning !== "" && !message.content && !message.calls.length;
}
