"""What the server offers, as data: each endpoint with the types of its fields and a good request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}


def some(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


@dataclass(frozen=True)
class Endpoint:
    """``fields``: schemas by name. ``example``: a body that is answered with ``status``; None: there is no body."""

    method: str
    path: str
    fields: Schema = field(default_factory=dict)
    example: dict[str, Any] | None = None
    query: tuple[str, ...] = ()
    status: int = 200


INTEGERS = (
    "n_predict max_tokens n n_cmpl n_keep n_discard n_indent n_probs top_k repeat_last_n min_keep seed id_slot "
    "priority n_cache_reuse t_max_predict_ms sse_ping_interval reasoning_budget_tokens mirostat dry_allowed_length"
).split()
NUMBERS = (
    "temperature top_p min_p typical_p top_n_sigma xtc_probability xtc_threshold repeat_penalty presence_penalty "
    "frequency_penalty dynatemp_range dynatemp_exponent dry_multiplier dry_base mirostat_tau mirostat_eta"
).split()
FLAGS = (
    "stream cache_prompt ignore_eos return_tokens return_progress timings_per_token post_sampling_probs logprobs "
    "parallel_tool_calls add_generation_prompt echo verbose"
).split()
SAMPLING: Schema = {
    **dict.fromkeys(INTEGERS, INTEGER), **dict.fromkeys(NUMBERS, NUMBER), **dict.fromkeys(FLAGS, FLAG),
    "model": TEXT, "stop": either(TEXT, some(TEXT)), "samplers": either(TEXT, some(TEXT)),
    "logit_bias": either(some(some(NUMBER)), {"type": "object", "additionalProperties": NUMBER}),
    "response_fields": some(TEXT), "lora": some(OBJECT), "grammar": TEXT, "json_schema": OBJECT,
    "stream_options": OBJECT, "top_logprobs": INTEGER,
}  # fmt: skip
PROMPT = either(TEXT, some(either(INTEGER, TEXT)))
PART: Schema = {"type": "object", "properties": {"type": TEXT, "text": TEXT}}
CALL: Schema = {"type": "object", "properties": {"id": TEXT, "type": TEXT, "function": OBJECT}}
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "user", "assistant", "tool", "developer"]},
        "content": either(TEXT, some(PART), {"type": "null"}), "reasoning_content": TEXT, "tool_call_id": TEXT,
        "tool_calls": some(CALL),
    },
    "required": ["role"],
}  # fmt: skip
TOOLS = some(
    {"type": "object", "properties": {"type": TEXT, "function": OBJECT, "name": TEXT, "input_schema": OBJECT}}
)
CHAT: Schema = {
    **SAMPLING, "messages": some(MESSAGE), "tools": TOOLS, "tool_choice": either(TEXT, OBJECT),
    "chat_template_kwargs": OBJECT, "reasoning_effort": TEXT, "reasoning_format": TEXT, "response_format": OBJECT,
    "max_completion_tokens": INTEGER, "continue_final_message": FLAG, "reasoning_control": FLAG,
}  # fmt: skip
HI = [{"role": "user", "content": "Hi"}]
PATH_SCHEMA = {"type": "object", "properties": {"path": TEXT}, "required": ["path"]}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "Read", "parameters": PATH_SCHEMA}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
ROUND = [*HI, {"role": "assistant", "content": None, "tool_calls": [CALLED]},
         {"role": "tool", "tool_call_id": "c1", "content": "text"}]  # fmt: skip
CHAT_EXAMPLE = {"messages": ROUND, "tools": [TOOL], "max_tokens": 4, "temperature": 0.7, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
COMPLETION_EXAMPLE = {"prompt": "def add(a, b):", "n_predict": 4, "stop": ["\n\n"], "n_probs": 2, "seed": 1}
MESSAGES: Schema = {
    "messages": some(MESSAGE), "system": either(TEXT, some(PART)), "tools": TOOLS, "tool_choice": OBJECT,
    "max_tokens": INTEGER, "stop_sequences": some(TEXT), "stream": FLAG, "thinking": OBJECT, "temperature": NUMBER,
    "top_k": INTEGER, "top_p": NUMBER, "metadata": OBJECT,
}  # fmt: skip
MESSAGES_EXAMPLE = {
    "messages": [*HI, {"role": "assistant", "content": [
        {"type": "text", "text": "Yes"},
        {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "text"}]}],
    "tools": [{"name": "read_file", "input_schema": PATH_SCHEMA}], "max_tokens": 4, "system": "Be short.",
    "stream": True,
}  # fmt: skip
RESPONSES: Schema = {
    "input": either(TEXT, some(OBJECT)), "instructions": TEXT, "tools": TOOLS, "tool_choice": either(TEXT, OBJECT),
    "max_output_tokens": INTEGER, "stream": FLAG, "temperature": NUMBER, "text": OBJECT, "reasoning": OBJECT,
    "previous_response_id": TEXT, "store": FLAG, "parallel_tool_calls": FLAG,
}  # fmt: skip
RESPONSES_EXAMPLE = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
              {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"a"}'},
              {"type": "function_call_output", "call_id": "c1", "output": "text"}],
    "tools": [{"type": "function", "name": "read_file", "parameters": PATH_SCHEMA}],
    "max_output_tokens": 4, "stream": True,
}  # fmt: skip
INFILL: Schema = {**SAMPLING, "input_prefix": TEXT, "input_suffix": TEXT, "prompt": TEXT, "input_extra": some(OBJECT)}
INFILL_EXAMPLE = {"input_prefix": "def add(", "input_suffix": "return", "n_predict": 4,
                  "input_extra": [{"filename": "a.py", "text": "x = 1"}]}  # fmt: skip

EMBEDDINGS: Schema = {
    "input": PROMPT, "content": PROMPT, "embd_normalize": INTEGER, "encoding_format": TEXT, "model": TEXT,
    "priority": INTEGER, "dimensions": INTEGER,
}  # fmt: skip

ENDPOINTS = (
    Endpoint("POST", "/completion", {**SAMPLING, "prompt": PROMPT}, COMPLETION_EXAMPLE),
    Endpoint("POST", "/v1/completions", {**SAMPLING, "prompt": PROMPT}, {"prompt": "Once", "max_tokens": 4}),
    Endpoint("POST", "/v1/chat/completions", CHAT, CHAT_EXAMPLE),
    Endpoint("POST", "/v1/messages", MESSAGES, MESSAGES_EXAMPLE),
    Endpoint("POST", "/v1/messages/count_tokens", MESSAGES, MESSAGES_EXAMPLE),
    Endpoint("POST", "/v1/responses", RESPONSES, RESPONSES_EXAMPLE),
    Endpoint("POST", "/infill", INFILL, INFILL_EXAMPLE),
    Endpoint("POST", "/apply-template", CHAT, {"messages": ROUND, "tools": [TOOL]}),
    Endpoint("POST", "/tokenize", {"content": PROMPT, "add_special": FLAG, "parse_special": FLAG, "with_pieces": FLAG},
             {"content": "Hello <|im_end|>", "with_pieces": True}),
    Endpoint("POST", "/detokenize", {"tokens": some(INTEGER)}, {"tokens": [1, 2, 3]}),
    # Both answer 501 without --embeddings, with which the long run starts its server.
    Endpoint("POST", "/embedding", EMBEDDINGS, {"content": "Hello"}, status=501),
    Endpoint("POST", "/v1/embeddings", EMBEDDINGS, {"input": ["Hello", [1, 2]], "encoding_format": "base64"},
             status=501),
    Endpoint("POST", "/v1/chat/completions/control", {"id": TEXT, "action": TEXT},
             {"id": "x", "action": "reasoning_end"}),
    Endpoint("POST", "/v1/streams/lookup", {"conv_ids": some(TEXT)}, {"conv_ids": ["x"]}),
    Endpoint("GET", "/health"),
    Endpoint("GET", "/props"),
    Endpoint("GET", "/slots", query=("fail_on_no_slot",)),
    Endpoint("GET", "/metrics"),
    Endpoint("GET", "/v1/models"),
    Endpoint("GET", "/lora-adapters"),
    Endpoint("GET", "/v1/stream", query=("conv_id", "from"), status=404),
    Endpoint("DELETE", "/v1/stream", query=("conv_id",), status=204),
)  # fmt: skip
