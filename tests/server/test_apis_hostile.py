"""Bodies of any shape for the Messages and Responses APIs and /infill: always an answer, never an internal error."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said
from tests.server.test_params_hostile import CALM, VALUES
from tests.server.test_params_hostile import check as check_answer

check = partial(check_answer, client=make_client(ScriptedEngine(said("ok"))))


def objects(keys: str, types: str = "") -> st.SearchStrategy[Any]:
    """Objects with some of these keys, whose ``type`` often means something."""
    kinds = st.sampled_from(types.split()) if types else st.nothing()
    values = st.dictionaries(st.sampled_from(keys.split()), VALUES, max_size=4)
    return st.builds(lambda kind, rest: {**rest, "type": kind}, kinds, values) | values if types else values


PARTS = objects(
    "text thinking source id name input tool_use_id content image_url refusal is_error",
    "text thinking image tool_use tool_result input_text output_text input_image input_file refusal redacted_thinking",
)
CONTENT = VALUES | st.lists(PARTS | VALUES, max_size=3)
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool"]) | VALUES
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": CONTENT}) | objects("role content") | VALUES, max_size=3
)
ITEMS = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": CONTENT})
    | objects(
        "role content arguments call_id name output summary status id",
        "message function_call function_call_output reasoning item_reference",
    )
    | st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": st.just("c"), "output": CONTENT})
    | VALUES,
    max_size=3,
)
ANTHROPIC_FIELDS = objects(
    "system tools tool_choice stop_sequences max_tokens temperature top_p top_k chat_template_kwargs thinking metadata"
)
THINKING = objects("budget_tokens", "enabled disabled adaptive")
CHOICES = objects("name disable_parallel_tool_use function", "auto any tool none function allowed_tools")
TOOLS = st.lists(objects("name description input_schema parameters strict", "function custom"), max_size=2)
RESPONSES_FIELDS = objects(
    "instructions tools tool_choice max_output_tokens reasoning text previous_response_id n parallel_tool_calls model"
)


@CALM
@given(MESSAGES | VALUES, ANTHROPIC_FIELDS, THINKING, CHOICES, TOOLS)
def test_messages(messages: Any, fields: Any, thinking: Any, choice: Any, tools: Any) -> None:
    body = {"messages": messages, "thinking": thinking, "tool_choice": choice, "tools": tools, **fields}
    check("/v1/messages", body)
    check("/v1/messages/count_tokens", body)


@CALM
@given(ITEMS | VALUES, RESPONSES_FIELDS, CHOICES, TOOLS)
def test_responses(items: Any, fields: Any, choice: Any, tools: Any) -> None:
    check("/v1/responses", {"input": items, "tool_choice": choice, "tools": tools, **fields})
    check("/responses/input_tokens", {"input": items, **fields})


@CALM
@given(VALUES, VALUES, VALUES, st.lists(objects("filename text") | VALUES, max_size=3) | VALUES)
def test_infill(prefix: Any, suffix: Any, prompt: Any, extra: Any) -> None:
    check("/infill", {"input_prefix": prefix, "input_suffix": suffix, "prompt": prompt, "input_extra": extra})


@CALM
@given(VALUES)
def test_bodies(body: Any) -> None:
    paths = "/v1/messages /v1/responses /infill /v1/chat/completions/control /v1/streams/lookup /lora-adapters"
    for path in paths.split():
        check(path, body)
