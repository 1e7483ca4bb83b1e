"""Request fields that every completion-like endpoint reads: their types, limits, defaults and meaning.

:func:`parse_params` turns a body into ``CompletionParams``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyjet.engine.chain import active_samplers
from pyjet.server.answer_rules import NO_TRIGGERS
from pyjet.server.completion_params import CHAT_FORMATS, CompletionParams, default_params
from pyjet.server.dry_breakers import token_breakers
from pyjet.server.errors import ApiError
from pyjet.server.infill_tokens import infill_tokens
from pyjet.server.json_fields import (
    FLOAT32_MAX,
    INT32_MAX,
    INT64_MAX,
    float32,
    lenient_int,
    present,
    read_bool,
    read_float,
    read_int,
    read_str,
    read_strings,
)
from pyjet.server.logit_bias import end_token_bans, parse_bias
from pyjet.server.profiles import find_profile
from pyjet.server.sampler_names import is_repeat_penalty, samplers_from_chars, samplers_from_names

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.options import ServerOptions

REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")
_FLOAT_LIMITS = (-FLOAT32_MAX, FLOAT32_MAX)


def parse_params(
    body: Mapping[str, Any], options: ServerOptions, tokenizer: Tokenizer, *, n_slots: int
) -> CompletionParams:
    """Read all fields of ``body`` (``n_slots`` bounds ``n``). ApiError 400 names the first wrong field."""
    params = default_params(options, tokenizer)
    params.profile = find_profile(options.profiles, body.get("model"))
    params.priority = read_int(body, ("priority",), params.profile.priority, -INT32_MAX, INT32_MAX, hard=True)
    _read_numbers(body, params, n_slots)
    _read_flags(body, params)
    _read_dry(body, params, options)
    _read_grammar(body, params, tokenizer)
    _read_chat(body, params)
    _read_bias(body, params, tokenizer)
    _read_stop(body, params, options)
    _read_samplers(body, params)
    _check_penalty(params)
    _add_token_tables(params, tokenizer)
    _check_lora(body)
    if isinstance(fields := body.get("response_fields"), list) and all(isinstance(f, str) for f in fields):
        params.response_fields = list(fields)
    id_slot = lenient_int(body.get("id_slot"), -1)
    params.id_slot = id_slot % n_slots if id_slot >= 0 else -1
    return params


def _read_numbers(body: Mapping[str, Any], params: CompletionParams, n_slots: int) -> None:
    def integer(*names: str, low: int, high: int = INT32_MAX, hard: bool = True) -> int:
        return read_int(body, names, getattr(params, names[0]), low, high, hard=hard)

    def real(name: str, low: float = _FLOAT_LIMITS[0], high: float = _FLOAT_LIMITS[1], hard: bool = False) -> float:
        return read_float(body, (name,), getattr(params, name), low, high, hard=hard)

    params.sse_ping_interval = integer("sse_ping_interval", low=-1)
    params.n_predict = integer("n_predict", "max_completion_tokens", "max_tokens", low=-1)
    params.n_indent = integer("n_indent", low=0)
    params.n_keep = integer("n_keep", low=-1)
    params.n_discard = integer("n_discard", low=0)
    params.n_cmpl = integer("n_cmpl", "n", low=1, high=n_slots)
    params.n_cache_reuse = integer("n_cache_reuse", low=0)
    params.t_max_predict_ms = integer("t_max_predict_ms", low=-1, high=INT64_MAX)
    params.top_k = integer("top_k", low=0, hard=False)
    params.top_p = real("top_p", 0.0, 1.0)
    params.min_p = real("min_p", 0.0, 1.0)
    params.top_n_sigma = real("top_n_sigma")
    params.xtc_probability = real("xtc_probability", 0.0, 1.0)
    params.xtc_threshold = real("xtc_threshold", 0.0, 1.0)
    params.typical_p = real("typical_p")
    params.temperature = real("temperature", 0.0)
    params.dynatemp_range = real("dynatemp_range")
    params.dynatemp_exponent = real("dynatemp_exponent")
    params.repeat_last_n = integer("repeat_last_n", low=0)
    params.repeat_penalty = real("repeat_penalty")
    params.frequency_penalty = real("frequency_penalty")
    params.presence_penalty = real("presence_penalty")
    params.mirostat = integer("mirostat", low=0, high=2, hard=False)
    params.mirostat_tau = real("mirostat_tau")
    params.mirostat_eta = real("mirostat_eta")
    params.adaptive_target = real("adaptive_target", high=1.0)
    params.adaptive_decay = real("adaptive_decay", 0.0, 0.99, hard=True)
    params.seed = read_int(body, ("seed",), params.seed, -INT64_MAX, INT64_MAX) % 2**32
    params.n_probs = integer("n_probs", "logprobs", low=-INT32_MAX, hard=False)
    params.min_keep = integer("min_keep", low=0)


def _read_flags(body: Mapping[str, Any], params: CompletionParams) -> None:
    for name in (
        "verbose",
        "timings_per_token",
        "stream",
        "cache_prompt",
        "return_tokens",
        "return_progress",
        "backend_sampling",
        "post_sampling_probs",
        "grammar_lazy",
        "reasoning_control",
    ):
        setattr(params, name, read_bool(body, name, getattr(params, name)))
    for name in ("parse_tool_calls", "echo"):  # only their type matters here
        read_bool(body, name, False)
    stream_options = body.get("stream_options")
    if isinstance(stream_options, dict):
        params.include_usage = read_bool(stream_options, "include_usage", False)


def _read_dry(body: Mapping[str, Any], params: CompletionParams, options: ServerOptions) -> None:
    params.dry_multiplier = read_float(body, ("dry_multiplier",), params.dry_multiplier, *_FLOAT_LIMITS)
    base = read_float(body, ("dry_base",), params.dry_base, *_FLOAT_LIMITS)
    params.dry_base = base if base >= 1.0 else float32(options.dry_base)
    for name in ("dry_allowed_length", "dry_penalty_last_n"):
        setattr(params, name, read_int(body, (name,), getattr(params, name), 0, INT32_MAX, hard=True))
    breakers = body.get("dry_sequence_breakers")
    if breakers is None:
        return
    if not isinstance(breakers, list) or not breakers or not all(isinstance(text, str) for text in breakers):
        message = "Error: dry_sequence_breakers must be a non-empty array of strings"
        raise ApiError(400, f"Field 'dry_sequence_breakers': {message}")
    params.dry_sequence_breakers = list(breakers)


def _read_grammar(body: Mapping[str, Any], params: CompletionParams, tokenizer: Tokenizer) -> None:
    if body.get("json_schema") is not None and "grammar" not in body:
        params.json_schema = body["json_schema"]
        params.grammar = ""
    elif isinstance(grammar := body.get("grammar"), str):
        params.grammar = grammar
        params.json_schema = None
    if (preserved := body.get("preserved_tokens")) is not None:
        encoded = [tokenizer.encode(text) for text in read_strings("preserved_tokens", preserved)]
        params.preserved_tokens = sorted({ids[0] for ids in encoded if len(ids) == 1})
    if (triggers := body.get("grammar_triggers")) is not None:
        params.grammar_triggers = triggers if isinstance(triggers, list) else [triggers]
        if params.grammar_lazy and not params.grammar_triggers:
            raise ApiError(400, NO_TRIGGERS)


def _read_chat(body: Mapping[str, Any], params: CompletionParams) -> None:
    read_int(body, ("reasoning_budget_tokens",), -1, -1, INT32_MAX, hard=True)  # of chats only
    if (name := present(body, ("chat_format",))) is not None:
        number = read_int(body, (name,), 0, -INT32_MAX, INT32_MAX)
        if not 0 <= number < len(CHAT_FORMATS):
            raise ApiError(500, "Unknown chat format")
        params.chat_format = CHAT_FORMATS[number]
    params.reasoning_format = read_str(body, "reasoning_format", params.reasoning_format)
    if params.reasoning_format not in REASONING_FORMATS:
        message = f"Unknown reasoning format: {params.reasoning_format}"
        raise ApiError(400, f"Field 'reasoning_format': {message}")
    params.generation_prompt = read_str(body, "generation_prompt", "")


def _read_bias(body: Mapping[str, Any], params: CompletionParams, tokenizer: Tokenizer) -> None:
    bias = body.get("logit_bias")
    if bias is not None:
        params.logit_bias = parse_bias(bias, tokenizer)
    if body.get("ignore_eos") is not None:
        params.ignore_eos = read_bool(body, "ignore_eos", False)
        if params.ignore_eos:
            params.logit_bias = params.logit_bias + end_token_bans(tokenizer)


def _read_stop(body: Mapping[str, Any], params: CompletionParams, options: ServerOptions) -> None:
    stop = body.get("stop")
    if isinstance(stop, str):
        stop = [stop]
    if not isinstance(stop, list):
        return
    words = read_strings("stop", [word for word in stop if word is not None])
    params.stop = [word for word in words if word] or list(options.reverse_prompt)


def _read_samplers(body: Mapping[str, Any], params: CompletionParams) -> None:
    samplers = body.get("samplers")
    if isinstance(samplers, str):
        params.samplers = samplers_from_chars(samplers)
    elif isinstance(samplers, list):
        params.samplers = samplers_from_names(read_strings("samplers", samplers))


def _check_penalty(params: CompletionParams) -> None:
    if not is_repeat_penalty(params.repeat_penalty):
        raise ApiError(400, "Failed to initialize samplers: penalty_repeat must be finite and greater than 0")


def _add_token_tables(params: CompletionParams, tokenizer: Tokenizer) -> None:
    """What samplers that look at texts need; only where they are used, since it is about the whole vocabulary."""
    if "dry" in active_samplers(params.sampling()):
        params.dry_breakers = token_breakers(tuple(params.dry_sequence_breakers), tokenizer)
    if "infill" in params.samplers and not params.mirostat:
        params.infill_tokens = infill_tokens(tokenizer)


def _check_lora(body: Mapping[str, Any]) -> None:
    """No adapter is ever loaded, so all ids are unknown, and unknown ids are ignored."""
    lora = body.get("lora")
    if lora is not None and not isinstance(lora, list):
        message = "Error: 'lora' must be an array of objects with 'id' and 'scale' fields"
        raise ApiError(400, f"Field 'lora': {message}")
