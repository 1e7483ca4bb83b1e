"""Every sampling option and field: it shows in the settings of an answer, and the engine gets it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pyjet.engine.request import DEFAULT_SAMPLERS, Breakers, SamplingParams
from pyjet.server.completion_params import CompletionParams
from pyjet.server.errors import ApiError
from pyjet.server.generation_settings import generation_settings
from pyjet.server.json_fields import float32
from pyjet.server.option_parser import OptionError, parse
from pyjet.server.params import parse_params
from tests.server.scripted import ids, tiny_tokenizer
from tests.server.test_options_table import PEER

ALL_FLAGS = [names for names, _, _ in PEER]
SAMPLING_FLAGS = ALL_FLAGS[ALL_FLAGS.index(["--samplers"]) : ALL_FLAGS.index(["-bs", "--backend-sampling"])]
CONSTRAINTS = {"--grammar", "--grammar-file", "--json-schema", "--json-schema-file"}

# value on the command line; field of a request, which is the engine's too, and its value
EFFECTS: dict[str, tuple[str, str, Any]] = {
    "--samplers": ("min_p;temperature;bogus", "samplers", ["min_p", "temperature"]),
    "--sampler-seq": ("tmz", "samplers", ["temperature", "min_p"]),
    "--seed": ("42", "seed", 42),
    "--temp": ("0.25", "temperature", 0.25),
    "--top-k": ("7", "top_k", 7),
    "--top-p": ("0.5", "top_p", 0.5),
    "--min-p": ("0.25", "min_p", 0.25),
    "--top-nsigma": ("1.5", "top_n_sigma", 1.5),
    "--xtc-probability": ("0.5", "xtc_probability", 0.5),
    "--xtc-threshold": ("0.25", "xtc_threshold", 0.25),
    "--typical": ("0.75", "typical_p", 0.75),
    "--repeat-last-n": ("9", "repeat_last_n", 9),
    "--repeat-penalty": ("1.25", "repeat_penalty", 1.25),
    "--presence-penalty": ("0.5", "presence_penalty", 0.5),
    "--frequency-penalty": ("-0.5", "frequency_penalty", -0.5),
    "--dry-multiplier": ("0.75", "dry_multiplier", 0.75),
    "--dry-base": ("2", "dry_base", 2.0),
    "--dry-allowed-length": ("5", "dry_allowed_length", 5),
    "--dry-penalty-last-n": ("11", "dry_penalty_last_n", 11),
    "--adaptive-target": ("0.25", "adaptive_target", 0.25),
    "--adaptive-decay": ("0.5", "adaptive_decay", 0.5),
    "--dynatemp-range": ("0.5", "dynatemp_range", 0.5),
    "--dynatemp-exp": ("2", "dynatemp_exponent", 2.0),
    "--mirostat": ("2", "mirostat", 2),
    "--mirostat-lr": ("0.25", "mirostat_eta", 0.25),
    "--mirostat-ent": ("3", "mirostat_tau", 3.0),
}
OTHERS = {"--dry-sequence-breaker", "--logit-bias", "--ignore-eos"}  # tests of their own


def long_name(names: list[str]) -> str:
    return next(name for name in names if name.startswith("--"))


def settings_of(*arguments: str, body: dict[str, Any] | None = None) -> CompletionParams:
    params = parse_params(body or {}, parse(list(arguments), {}).options, tiny_tokenizer(), n_slots=4)
    return params


def test_every_sampling_flag_of_the_peer_is_here() -> None:
    assert {long_name(names) for names in SAMPLING_FLAGS} == EFFECTS.keys() | OTHERS | CONSTRAINTS


@pytest.mark.parametrize("flag", EFFECTS)
def test_option_and_field(flag: str) -> None:
    value, field, expect = EFFECTS[flag]
    spellings = next(names for names in SAMPLING_FLAGS if flag in names)
    given = [settings_of(name, value) for name in spellings] + [settings_of(body={field: expect})]
    assert getattr(settings_of(), field) != expect
    for params in given:
        assert generation_settings(params)[field] == expect
        assert generation_settings(params, metrics_only=True)[field] == expect
        of_engine = getattr(params.sampling(), field)
        assert of_engine == (tuple(expect) if isinstance(expect, list) else expect)


def test_a_request_that_says_nothing_is_the_engines_default() -> None:
    params = settings_of().sampling()
    for name, value in vars(SamplingParams()).items():
        assert getattr(params, name) == (float32(value) if isinstance(value, float) else value), name
    assert params.samplers == DEFAULT_SAMPLERS


def test_unknown_samplers_are_left_out_with_a_warning() -> None:
    warnings = parse(["--samplers", "top_k;bogus;", "--sampler-seq", "kz"], {}).warnings
    assert any(text.startswith("--samplers: ") and "bogus" in text for text in warnings)
    assert any(text.startswith("--sampler-seq: ") and "z" in text for text in warnings)
    assert parse(["--samplers", "top-k;TOPP;nucleus;typ;temp;adaptive-p"], {}).warnings == []


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--temp", "-1"], "temperature", 0.0),
        (["--dry-base", "0.5"], "dry_base", 1.75),
        (["--dry-base", "3", "--dry-base", "0.5"], "dry_base", 3.0),
        (["--dry-sequence-breaker", "none"], "dry_sequence_breakers", []),
        (["--dry-sequence-breaker", r"\n", "--dry-sequence-breaker", "ab"], "dry_sequence_breakers", ["\n", "ab"]),
        (["--logit-bias", "5+1.5", "-l", "7-inf"], "logit_bias", [(5, 1.5), (7, -math.inf)]),
        (["--ignore-eos"], "ignore_eos", True),
    ],
)
def test_values_that_llama_server_changes(arguments: list[str], field: str, value: object) -> None:
    assert getattr(settings_of(*arguments), field) == value


def test_ignore_eos_bans_every_end() -> None:
    banned = {token for token, bias in settings_of("--ignore-eos").sampling().logit_bias if bias == -math.inf}
    assert banned == tiny_tokenizer().eog_ids


@pytest.mark.parametrize(
    "arguments",
    [
        ["--repeat-penalty", "0"], ["--repeat-penalty", "-1"], ["--repeat-penalty", "1e-45"],
        ["--repeat-last-n", "-1"], ["--dry-penalty-last-n", "-1"], ["--mirostat", "3"],
    ],
)  # fmt: skip
def test_values_that_are_refused(arguments: list[str]) -> None:
    with pytest.raises(OptionError, match=arguments[0]):
        parse(arguments, {})


@pytest.mark.parametrize("penalty", [0, -1.5, 1e-45])
def test_a_penalty_that_cannot_be_divided_by(penalty: float) -> None:
    with pytest.raises(ApiError) as caught:
        settings_of(body={"repeat_penalty": penalty})
    message = "Failed to initialize samplers: penalty_repeat must be finite and greater than 0"
    assert (caught.value.status, caught.value.message) == (400, message)


def test_adaptive_decay_and_others_are_clamped_or_refused() -> None:
    params = settings_of(body={"adaptive_target": 7, "xtc_probability": -1, "xtc_threshold": 9, "mirostat": -3})
    assert (params.adaptive_target, params.xtc_probability, params.xtc_threshold, params.mirostat) == (1, 0, 1, 0)


def test_breakers_are_made_when_dry_is_on() -> None:
    assert settings_of().dry_breakers == settings_of(body={"dry_multiplier": 1, "samplers": "k"}).dry_breakers
    assert settings_of().dry_breakers == Breakers()
    breakers = settings_of(body={"dry_multiplier": 1}).sampling().dry_breakers
    assert set(ids("\n") + ids(":")) <= breakers.tokens and not breakers.sequences
    assert settings_of("--dry-sequence-breaker", "none", body={"dry_multiplier": 1}).dry_breakers == Breakers()


def test_the_vocabulary_goes_with_the_infill_sampler_only() -> None:
    assert settings_of().infill_tokens is None
    assert settings_of(body={"samplers": "ki", "mirostat": 1}).sampling().infill_tokens is None
    assert settings_of("--samplers", "top_k;infill").sampling().infill_tokens is not None


def test_breakers_of_several_tokens() -> None:
    """Tokens that hold the text break by themselves; those that end with its beginning need its rest behind them."""
    tokenizer, text = tiny_tokenizer(), "x =\n"
    body = {"dry_multiplier": 1, "dry_sequence_breakers": [text, ""]}
    breakers = settings_of(body=body).sampling().dry_breakers
    assert all(text.encode() in tokenizer.token_bytes(token) for token in breakers.tokens)
    assert {tuple(tokenizer.encode(text)), tuple(ids("max") + ids(" =\n"))} & set(breakers.sequences)
    for head, *tail in breakers.sequences:
        rest = b"".join(tokenizer.token_bytes(token) for token in tail)
        assert rest and text.encode().endswith(rest)
        assert tokenizer.token_bytes(head).endswith(text.encode().removesuffix(rest))


@pytest.mark.parametrize("text", [":", "\n", " the", "return x", "é", "a" * 60])
def test_breakers_are_found_in_every_token(text: str) -> None:
    tokenizer, raw = tiny_tokenizer(), text.encode()[:40]
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
    body = {"dry_multiplier": 1, "dry_sequence_breakers": [text]}
    breakers = settings_of(body=body).sampling().dry_breakers
    assert breakers.tokens == {token for token, piece in enumerate(pieces) if raw in piece}
    heads = {
        token
        for token, piece in enumerate(pieces)
        if raw not in piece and any(piece.endswith(raw[:n]) for n in range(1, len(raw)))
    }
    assert {head for head, *_ in breakers.sequences} == heads
