"""Request fields: types, limits, aliases, exact error texts, and how they are shown."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pyjet.server.completion_params import CompletionParams, default_params
from pyjet.server.errors import ApiError
from pyjet.server.generation_settings import generation_settings
from pyjet.server.options import ServerOptions
from pyjet.server.params import parse_params
from tests.server.scripted import ids, tiny_tokenizer

FULL_KEYS = (
    "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma xtc_probability xtc_threshold "
    "typical_p repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base "
    "dry_allowed_length dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target "
    "adaptive_decay stop max_tokens n_predict n_keep n_discard ignore_eos stream logit_bias n_probs min_keep grammar "
    "grammar_lazy grammar_triggers preserved_tokens chat_format reasoning_format reasoning_in_content "
    "generation_prompt samplers speculative.types timings_per_token post_sampling_probs backend_sampling lora"
).split()


def parse(body: dict[str, Any], **options: Any) -> CompletionParams:
    return parse_params(body, ServerOptions(**options), tiny_tokenizer(), n_slots=4)


def error_of(body: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        parse(body)
    return caught.value.status, caught.value.message


def test_defaults_are_llama_servers_in_its_order() -> None:
    settings = generation_settings(parse({}))
    assert list(settings) == FULL_KEYS
    assert settings["temperature"] == 0.800000011920929
    assert settings["min_p"] == 0.05000000074505806
    assert settings["seed"] == 4294967295
    assert settings["samplers"] == [
        "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
    ]  # fmt: skip
    assert settings["speculative.types"] == "none"
    assert settings["max_tokens"] == settings["n_predict"] == -1
    assert settings["chat_format"] == "Content-only"


def test_metrics_form_leaves_out_the_long_fields() -> None:
    keys = list(generation_settings(default_params(ServerOptions(), tiny_tokenizer()), metrics_only=True))
    left_out = {"dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy", "grammar_triggers"}
    assert keys == [key for key in FULL_KEYS if key not in left_out | {"preserved_tokens"}]


def test_floats_and_integers_print_as_such() -> None:
    text = json.dumps(generation_settings(parse({"temperature": 0, "top_k": 7.9, "repeat_penalty": 1})))
    assert '"temperature": 0.0,' in text
    assert '"top_k": 7,' in text
    assert '"repeat_penalty": 1.0,' in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n_predict": "x"}, "Field 'n_predict': [json.exception.type_error.302] type must be number, but is string"),
        ({"n_predict": -5}, "Field 'n_predict': Value must be between -1 <= value <= 2147483647, but got -5"),
        ({"max_tokens": -5}, "Field 'max_tokens': Value must be between -1 <= value <= 2147483647, but got -5"),
        (
            {"adaptive_decay": 2},
            "Field 'adaptive_decay': Value must be between 0.000000 <= value <= 0.990000, but got 2.000000",
        ),
        ({"n": 0}, "Field 'n': Value must be between 1 <= value <= 4, but got 0"),
        ({"n_cmpl": 5}, "Field 'n_cmpl': Value must be between 1 <= value <= 4, but got 5"),
        ({"stream": 1}, "Field 'stream': [json.exception.type_error.302] type must be boolean, but is number"),
        (
            {"temperature": "hot"},
            "Field 'temperature': [json.exception.type_error.302] type must be number, but is string",
        ),
        ({"top_p": [1]}, "Field 'top_p': [json.exception.type_error.302] type must be number, but is array"),
        ({"stop": ["a", 1]}, "Field 'stop': [json.exception.type_error.302] type must be string, but is number"),
        (
            {"dry_sequence_breakers": []},
            "Field 'dry_sequence_breakers': Error: dry_sequence_breakers must be a non-empty array of strings",
        ),
        ({"lora": {}}, "Field 'lora': Error: 'lora' must be an array of objects with 'id' and 'scale' fields"),
        ({"reasoning_format": "x"}, "Field 'reasoning_format': Unknown reasoning format: x"),
        ({"repeat_last_n": -1}, "Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647, but got -1"),
        (
            {"stream_options": {"include_usage": "yes"}},
            "Field 'include_usage': [json.exception.type_error.302] type must be boolean, but is string",
        ),
    ],
)
def test_wrong_fields(body: dict[str, Any], message: str) -> None:
    assert error_of(body) == (400, message)


def test_unknown_chat_format_is_a_server_error() -> None:
    assert error_of({"chat_format": 99}) == (500, "Unknown chat format")


def test_null_means_absent() -> None:
    names = [*FULL_KEYS, "n", "stop", "max_tokens", "id_slot", "stream_options", "lora", "samplers", "logprobs"]
    assert parse(dict.fromkeys(names)) == parse({})


def test_first_alias_present_wins() -> None:
    assert parse({"max_tokens": 3, "max_completion_tokens": 4}).n_predict == 4
    assert parse({"max_tokens": 3, "n_predict": 5}).n_predict == 5
    assert parse({"n_predict": None, "max_tokens": 3}).n_predict == 3
    assert parse({"logprobs": True}).n_probs == 1
    assert parse({"logprobs": 4, "n_probs": 2}).n_probs == 2


def test_clamped_fields() -> None:
    params = parse({"temperature": -1, "top_p": 3, "min_p": -1, "top_k": -5, "mirostat": 7})
    assert (params.temperature, params.top_p, params.min_p, params.top_k, params.mirostat) == (0.0, 1.0, 0.0, 0, 2)


def test_numbers_of_any_size() -> None:
    assert parse({"seed": -1}).seed == 4294967295
    assert parse({"seed": 1.9}).seed == 1
    assert parse({"top_k": 1e30}).top_k == 2**31 - 1
    assert math.isfinite(parse({"repeat_penalty": 1e300}).repeat_penalty)
    assert error_of({"top_k": json.loads("1e999")})[0] == 400


def test_silent_fields() -> None:
    params = parse({"id_slot": "1", "samplers": 5, "stop": 5, "stream_options": [], "response_fields": "a"})
    assert (params.id_slot, params.stop, params.response_fields) == (-1, [], [])
    assert parse({"id_slot": 6}).id_slot == 2


def test_stop_strings_and_their_default() -> None:
    assert parse({"stop": "END"}).stop == ["END"]
    assert parse({"stop": ["", "a"]}).stop == ["a"]
    assert parse({"stop": [""]}, reverse_prompt=["User:"]).stop == ["User:"]


def test_samplers_by_name_and_letter() -> None:
    assert parse({"samplers": ["top-k", "TOPP", "temp", "no"]}).samplers == ["top_k", "top_p", "temperature"]
    assert parse({"samplers": "kt?"}).samplers == ["top_k", "temperature"]
    assert parse({"samplers": ["dry", "min_p"]}).sampling().samplers == ("dry", "min_p")


def test_logit_bias_forms() -> None:
    hello = ids("hello")
    params = parse({"logit_bias": [[5, 1.5], ["hello", -2], [7, False], [8, True], [10**9, 1], "x", [1]]})
    assert params.logit_bias == [(5, 1.5), *[(token, -2.0) for token in hello], (7, -math.inf)]
    by_object = parse({"logit_bias": {"5": 1.5, "hello": False, "99999999": 1}})
    assert by_object.logit_bias == [(5, 1.5), *[(token, -math.inf) for token in hello]]
    shown = generation_settings(params)["logit_bias"]
    assert shown[0] == {"bias": 1.5, "token": 5} and shown[-1] == {"bias": None, "token": 7}


def test_ignore_eos_bans_every_end_token() -> None:
    banned = {token for token, bias in parse({"ignore_eos": True}).logit_bias if bias == -math.inf}
    assert banned == tiny_tokenizer().eog_ids


def test_dry_base_below_one_is_the_default() -> None:
    assert parse({"dry_base": 0.5}).dry_base == 1.75


def test_choices_have_their_own_seeds() -> None:
    assert [parse({"seed": 7}).sampling(choice).seed for choice in range(3)] == [7, 8, 9]
    assert parse({}).sampling(1).seed == 0xFFFFFFFF


def test_zero_tokens_still_yield_one() -> None:
    assert parse({"n_predict": 0}).max_tokens(-1, 5) == 1
    assert parse({"n_predict": -1}).max_tokens(9, 5) == 9
    assert parse({"n_predict": 2}).max_tokens(9, 5) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"grammar": ""},
        {"n_keep": 5, "n_discard": 5, "n_cache_reuse": 256, "lora": [{"id": 0, "scale": 1.0}]},
    ],
)
def test_what_has_no_effect_is_accepted(body: dict[str, Any]) -> None:
    parse(body)
