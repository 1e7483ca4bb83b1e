/** The request for the next answer of a conversation. */

import { REQUEST_NAMES } from "./setting_fields.js";

/** Body of /v1/chat/completions for `messages`, as conversations.js describes them. */
export function requestBody(messages, settings, model) {
  const body = {
    messages: [...systemMessages(settings), ...messages.map(toOpenAi)],
    stream: true,
    timings_per_token: true,
    return_progress: true,
    reasoning_control: true,
  };
  if (model) body.model = model;
  for (const name of REQUEST_NAMES) {
    const value = settings.get(name);
    if (value !== undefined) body[name] = value;
  }
  const thinking = settings.get("thinking");
  if (thinking) body.chat_template_kwargs = { enable_thinking: thinking === "on" };
  const tools = settings.json("tools");
  if (tools?.length) body.tools = tools;
  return { ...body, ...settings.json("customJson") };
}

function systemMessages(settings) {
  const text = settings.get("systemMessage")?.trim();
  return text ? [{ role: "system", content: text }] : [];
}

function toOpenAi(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.callId, content: message.content };
  if (message.role === "user") return { role: "user", content: message.content };
  const answer = { role: "assistant", content: message.content };
  if (message.reasoning) answer.reasoning_content = message.reasoning;
  if (message.calls.length) {
    answer.tool_calls = message.calls.map(({ id, name, arguments: text }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    }));
  }
  return answer;
}
