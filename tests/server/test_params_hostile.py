"""Bodies of any shape: always an answer, never a crash or an internal error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said
from tests.server.test_params import FULL_KEYS

ENGINE = ScriptedEngine(said("ok"))
CLIENT = make_client(ENGINE)
FIELDS = [
    *FULL_KEYS, "prompt", "messages", "tools", "tool_choice", "n", "n_cmpl", "max_completion_tokens", "stream_options",
    "n_indent", "t_max_predict_ms", "return_tokens", "return_progress", "response_fields", "sse_ping_interval",
    "verbose", "id_slot", "json_schema", "response_format", "logprobs", "top_logprobs", "chat_template_kwargs",
    "reasoning_effort", "reasoning_budget_tokens", "continue_final_message", "add_generation_prompt", "echo",
    "parallel_tool_calls", "cache_prompt", "n_cache_reuse", "parse_tool_calls", "reasoning_control",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)
CALM = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def check(path: str, body: Any, client: Any = CLIENT) -> None:
    response = client.post(path, data=json.dumps(body))
    text = response.get_data(as_text=True)
    if response.status_code == 200:
        return
    assert response.status_code in (400, 500, 501), text
    error = json.loads(text)["error"]
    assert error["message"] and not error["message"].startswith("internal error"), (path, body, error)


@CALM
@given(BODIES)
def test_completion_fields(body: dict[str, Any]) -> None:
    check("/completion", {"prompt": "a", **body})


@CALM
@given(BODIES)
def test_chat_fields(body: dict[str, Any]) -> None:
    check("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], **body})


@CALM
@given(VALUES)
def test_prompts(prompt: Any) -> None:
    check("/completion", {"prompt": prompt, "n_predict": 1})


@CALM
@given(VALUES)
def test_bodies(body: Any) -> None:
    check("/v1/completions", body)
    check("/v1/chat/completions", body)


MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "reasoning_content", "name"]), VALUES, max_size=4)
    | VALUES,
    max_size=3,
)


@CALM
@given(MESSAGES)
def test_messages(messages: Any) -> None:
    check("/v1/chat/completions", {"messages": messages})


def test_the_server_still_answers() -> None:
    response = CLIENT.post("/completion", data=json.dumps({"prompt": "a"}))
    assert response.status_code == 200 and response.get_json()["content"] == "ok"
