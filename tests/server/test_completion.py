"""/completion and /v1/completions, whole answers: keys and their order, prompt forms, finish reasons, errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, post, post_error, said, tiny_tokenizer

NATIVE_KEYS = [
    "index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
    "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached",
    "timings",
]  # fmt: skip
TIMING_KEYS = [
    "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
    "predicted_per_token_ms", "predicted_per_second", "queue_ms", "ttft_ms",
]  # fmt: skip


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(said("Hello you"))


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_native_object(engine: ScriptedEngine, path: str) -> None:
    prompt = ids("Once upon")
    answer = post(make_client(engine), path, {"prompt": "Once upon", "return_tokens": True, "seed": 3})
    assert list(answer) == NATIVE_KEYS
    assert list(answer["timings"]) == TIMING_KEYS
    assert answer["content"] == "Hello you"
    assert answer["tokens"] == [*ids("Hello you"), eos()]
    assert (answer["stop_type"], answer["stopping_word"], answer["truncated"]) == ("eos", "", False)
    assert answer["tokens_evaluated"] == len(prompt) == answer["timings"]["prompt_n"]
    assert answer["tokens_predicted"] == len(answer["tokens"]) == answer["timings"]["predicted_n"]
    assert answer["tokens_cached"] == len(prompt) + len(answer["tokens"]) - 1
    assert answer["prompt"] == "Once upon" and answer["model"] == "tiny"
    assert answer["generation_settings"]["seed"] == 3
    assert engine.requests[0].prompt == tuple(prompt)


def test_timings_follow_the_peers_formulas(engine: ScriptedEngine) -> None:
    timings = post(make_client(engine), "/completion", {"prompt": "Once upon"})["timings"]
    steps = timings["predicted_n"] - 1
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / steps)
    assert timings["predicted_per_second"] == pytest.approx(1000 * steps / timings["predicted_ms"])
    assert timings["prompt_per_token_ms"] == pytest.approx(timings["prompt_ms"] / timings["prompt_n"])
    one = post(make_client(engine), "/completion", {"prompt": "a", "n_predict": 1})["timings"]
    assert (one["predicted_n"], one["predicted_per_token_ms"], one["predicted_per_second"]) == (1, 0.0, 0.0)


def test_limit_and_zero_tokens(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine), "/completion", {"prompt": "a", "n_predict": 0})
    assert (answer["tokens_predicted"], answer["stop_type"], answer["tokens"]) == (1, "limit", [])
    assert engine.requests[0].max_tokens == 1


def test_server_limit_applies_without_n_predict(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine, n_predict=2), "/completion", {"prompt": "a"})
    assert answer["tokens_predicted"] == 2 and answer["generation_settings"]["n_predict"] == 2


def test_full_context_truncates() -> None:
    engine = ScriptedEngine(Script(ids("word"), repeat=True), n_ctx_slot=16)
    answer = post(make_client(engine), "/completion", {"prompt": "a", "n_predict": 100000})
    assert (answer["stop_type"], answer["truncated"]) == ("limit", True)


@pytest.mark.parametrize("batch", [1, 2, 5, 16])
def test_stop_string_cancels_with_the_used_tokens(batch: int) -> None:
    engine = ScriptedEngine(Script(ids("one two three four five six seven"), batch=batch, repeat=True))
    answer = post(make_client(engine), "/completion", {"prompt": "a", "stop": ["three"], "return_tokens": True})
    assert answer["content"] == "one two "
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", "three")
    (request_id, keep_tokens), *_ = engine.cancels
    assert (request_id, keep_tokens) == (engine.requests[0].id, answer["tokens_predicted"])
    assert len(answer["tokens"]) == answer["timings"]["predicted_n"] == keep_tokens


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab cd", [ids("ab cd")]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([5, "ab", 7], [[5, *ids("ab"), 7]]),
        (["ab", 7], [[*ids("ab"), 7]]),
        (["ab", "cd"], [ids("ab"), ids("cd")]),
        ([[5, 6], "ab", ["cd", 7]], [[5, 6], ids("ab"), [*ids("cd"), 7]]),
        ({"prompt_string": "ab"}, [ids("ab")]),
        (["ab", {"prompt_string": "cd"}], [ids("ab"), ids("cd")]),
        ("a<|im_end|>", [[*ids("a"), tiny_tokenizer().token_id("<|im_end|>")]]),
    ],
)
def test_prompt_forms(engine: ScriptedEngine, prompt: Any, expected: list[list[int]]) -> None:
    answer = post(make_client(engine), "/completion", {"prompt": prompt, "n_predict": 1})
    assert [list(request.prompt) for request in engine.requests] == expected
    answers = [answer] if len(expected) == 1 else answer
    assert [one["index"] for one in answers] == list(range(len(expected)))


_ELEMENTS = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt string, or a list of '
    "mixed strings & tokens."
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "[json.exception.out_of_range.403] key 'prompt' not found"),
        ({"prompt": []}, '"prompt" must not be empty'),
        ({"prompt": None}, _ELEMENTS),
        ({"prompt": 5}, _ELEMENTS),
        ({"prompt": {"x": 1}}, _ELEMENTS),
        ({"prompt": [5, None]}, _ELEMENTS),
        ({"prompt": [5, True]}, _ELEMENTS),
        ({"prompt": [5, 6.0]}, _ELEMENTS),
        ({"prompt": [5, 2**64]}, _ELEMENTS),
        ({"prompt": [5, 2**63]}, "Prompt contains invalid tokens"),
        ({"prompt": [5, 10**9]}, "Prompt contains invalid tokens"),
        ({"prompt": [-1]}, "Prompt contains invalid tokens"),
        (
            {"prompt": {"prompt_string": "a", "multimodal_data": []}},
            "Multimodal data provided, but model does not support multimodal requests.",
        ),
        ([], "[json.exception.type_error.304] cannot use at() with array"),
    ],
)
def test_prompt_errors(engine: ScriptedEngine, body: Any, message: str) -> None:
    status, error = post_error(make_client(engine), "/completion", body)
    assert (status, error["message"], error["type"], error["code"]) == (400, message, "invalid_request_error", 400)
    assert engine.requests == []


def test_empty_prompt_is_answered_at_once(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine), "/completion", {"prompt": ""})
    assert (answer["content"], answer["stop_type"], answer["tokens_predicted"]) == ("", "none", 0)
    assert engine.requests == []


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_overlong_prompt_is_refused_before_queueing(path: str, stream: bool) -> None:
    engine = ScriptedEngine(said("x"), n_ctx_slot=8)
    body = {"prompt": [5] * 8, "stream": stream}
    status, error = post_error(make_client(engine), path, body)
    assert status == 400
    assert error == {
        "code": 400,
        "message": "request (8 tokens) exceeds the available context size (8 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 8,
        "n_ctx": 8,
    }
    assert engine.requests == []


@pytest.mark.parametrize("max_tokens", [2, 3, 4, 100000])
def test_max_tokens_beyond_the_context_is_no_error(max_tokens: int) -> None:
    engine = ScriptedEngine(Script([5], repeat=True), n_ctx_slot=8)
    answer = post(make_client(engine), "/v1/completions", {"prompt": [5] * 5, "max_tokens": max_tokens})
    assert answer["choices"][0]["finish_reason"] == "length"


def test_several_choices_share_the_prompt_and_differ_in_seed(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine), "/completion", {"prompt": ["a", "b"], "n": 2, "seed": 5})
    assert [one["index"] for one in answer] == [0, 1, 2, 3]
    assert [one["prompt"] for one in answer] == ["a", "a", "b", "b"]
    assert sorted(request.sampling.seed for request in engine.requests) == [5, 5, 6, 6]


def test_response_fields(engine: ScriptedEngine) -> None:
    fields = ["content", "generation_settings/n_predict", "no/such", "timings"]
    answer = post(make_client(engine), "/completion", {"prompt": "a", "n_predict": 4, "response_fields": fields})
    assert list(answer) == ["content", "generation_settings/n_predict", "timings"]
    assert answer["generation_settings/n_predict"] == 4


def test_probabilities(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine), "/completion", {"prompt": "a", "n_probs": 3})
    assert list(answer)[-1] == "completion_probabilities"
    entries = answer["completion_probabilities"]
    assert "".join(entry["token"] for entry in entries) == answer["content"]
    assert list(entries[0]) == ["id", "token", "bytes", "logprob", "top_logprobs"]
    assert entries[0]["bytes"] == list(entries[0]["token"].encode())
    assert [list(top) for top in entries[0]["top_logprobs"]] == [["id", "token", "bytes", "logprob"]] * 3
    assert entries[-1]["id"] == eos() and entries[-1]["token"] == "" and entries[-1]["bytes"] == []


def test_probabilities_after_sampling(engine: ScriptedEngine) -> None:
    body = {"prompt": "a", "n_probs": 2, "post_sampling_probs": True}
    entry = post(make_client(engine), "/completion", body)["completion_probabilities"][0]
    assert list(entry) == ["id", "token", "bytes", "prob", "top_probs"]
    assert entry["top_probs"][0]["prob"] == 0.5


def test_probability_zero_is_a_number() -> None:
    from pyjet.engine.request import TokenProbs

    never = TokenProbs(float("-inf"), ((6, float("-inf")),))
    engine = ScriptedEngine(Script([5, eos()], probs=lambda token, request: never))
    entry = post(make_client(engine), "/completion", {"prompt": "a", "n_probs": 1})["completion_probabilities"][0]
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == -3.4028234663852886e38


def test_tokens_of_a_stop_string_have_no_probabilities() -> None:
    engine = ScriptedEngine(Script([*ids("one"), *ids(" STOP")], repeat=True))
    body = {"prompt": "a", "n_probs": 1, "stop": [" STOP"]}
    entries = post(make_client(engine), "/completion", body)["completion_probabilities"]
    assert "".join(entry["token"] for entry in entries) == "one"


@pytest.mark.parametrize("n_predict", range(1, 21))
def test_cut_inside_a_character(n_predict: int) -> None:
    text = "你好🙂你好🙂"
    engine = ScriptedEngine(said(text))
    client = make_client(engine)
    content = post(client, "/completion", {"prompt": "repeat", "n_predict": n_predict})["content"]
    assert text.startswith(content.removesuffix("�"))
    assert content.count("�") <= 1


def test_engine_failures_have_their_status() -> None:
    for kind, status, error_type in (("server", 500, "server_error"), ("unavailable", 503, "unavailable_error")):
        engine = ScriptedEngine(Script(ids("hello"), fail_after=1, fail_kind=kind, fail_message="broken"))  # type: ignore[arg-type]
        got, error = post_error(make_client(engine), "/completion", {"prompt": "a"})
        assert (got, error["message"], error["type"]) == (status, "broken", error_type)


def test_openai_object(engine: ScriptedEngine) -> None:
    answer = post(make_client(engine), "/v1/completions", {"prompt": "Once", "model": "other", "best_of": 3})
    assert list(answer) == [
        "choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings",
    ]  # fmt: skip
    choice = {"text": "Hello you", "index": 0, "logprobs": None, "finish_reason": "stop"}
    assert answer["choices"] == [choice] and list(answer["choices"][0]) == list(choice)
    assert re.fullmatch(r"chatcmpl-[A-Za-z0-9]{32}", answer["id"])
    assert re.fullmatch(r"b11434-pyjet[0-9.]+", answer["system_fingerprint"])
    assert (answer["object"], answer["model"]) == ("text_completion", "tiny")
    n_prompt, n_text = len(ids("Once")), len(ids("Hello you")) + 1
    assert answer["usage"] == {
        "completion_tokens": n_text,
        "prompt_tokens": n_prompt,
        "total_tokens": n_prompt + n_text,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_openai_several_prompts_logprobs_and_verbose(engine: ScriptedEngine) -> None:
    body = {"prompt": ["a", "b"], "logprobs": 2, "verbose": True}
    answer = post(make_client(engine), "/v1/completions", body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert answer["__verbose"]["prompt"] == "a"
    assert list(answer)[-2:] == ["__verbose", "timings"]


def test_control_tokens_are_visible_on_request() -> None:
    tokens = [*ids("a<|im_start|>b"), eos()]
    assert post(make_client(ScriptedEngine(Script(tokens))), "/completion", {"prompt": "x"})["content"] == "ab"
    shown = post(make_client(ScriptedEngine(Script(tokens)), special=True), "/completion", {"prompt": "x"})
    assert shown["content"] == "a<|im_start|>b<|im_end|>"
    body = {"prompt": "x", "preserved_tokens": ["<|im_start|>"]}
    assert post(make_client(ScriptedEngine(Script(tokens))), "/completion", body)["content"] == "a<|im_start|>b"
