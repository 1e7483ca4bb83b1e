"""Request fields that every completion-like endpoint reads: their types, limits, defaults and meaning.

:func:`parse_params` turns a body into :class:`CompletionParams`; :func:`check_supported` refuses settings that
would change the answer but are not built, so that nothing is ever ignored silently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyjet.engine.request import RANDOM_SEED, SamplingParams
from pyjet.server.errors import ApiError
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
from pyjet.server.sampler_names import samplers_from_chars, samplers_from_names

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.options import ServerOptions

CHAT_FORMATS = ("Content-only", "peg-simple", "peg-native", "peg-gemma4", "peg-minimax-m3")
REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")
ENGINE_SAMPLERS = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")
_FLOAT_LIMITS = (-FLOAT32_MAX, FLOAT32_MAX)


@dataclass
class CompletionParams:
    """All settings of one request, defaults filled in. Names are llama-server's; floats are single precision."""

    # sampling
    seed: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    samplers: list[str]
    min_keep: int = 0
    ignore_eos: bool = False
    logit_bias: list[tuple[int, float]] = field(default_factory=list)
    backend_sampling: bool = False
    # what is generated and when it ends
    n_predict: int = -1
    stop: list[str] = field(default_factory=list)
    n_indent: int = 0
    t_max_predict_ms: int = -1
    n_keep: int = 0
    n_discard: int = 0
    n_cmpl: int = 1
    grammar: str = ""
    json_schema: Any = None
    grammar_lazy: bool = False
    grammar_triggers: list[Any] = field(default_factory=list)
    preserved_tokens: list[int] = field(default_factory=list)
    # cache and slot
    cache_prompt: bool = True
    n_cache_reuse: int = 0
    id_slot: int = -1
    # what the answer shows
    stream: bool = False
    include_usage: bool = False
    n_probs: int = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: list[str] = field(default_factory=list)
    sse_ping_interval: int = 30
    verbose: bool = False
    speculative_types: list[str] = field(default_factory=lambda: ["none"])
    # chat
    chat_format: str = CHAT_FORMATS[0]
    reasoning_format: str = "deepseek"
    generation_prompt: str = ""

    @property
    def reasoning_in_content(self) -> bool:
        return self.stream and self.reasoning_format == "deepseek-legacy"

    def max_tokens(self, server_limit: int) -> int:
        """Tokens to generate: -1 takes ``server_limit`` (``--n-predict``), 0 still yields one token."""
        n_predict = server_limit if self.n_predict < 0 else self.n_predict
        return n_predict if n_predict < 0 else max(1, n_predict)

    def sampling(self, choice: int = 0) -> SamplingParams:
        """The engine's view for choice number ``choice``: each has its own seed, as at llama-server."""
        seed = self.seed if self.seed == RANDOM_SEED else (self.seed + choice) % 2**32
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repeat_penalty=self.repeat_penalty,
            repeat_last_n=self.repeat_last_n,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple(self.logit_bias),
            seed=seed,
            min_keep=self.min_keep,
            samplers=tuple(name for name in self.samplers if name in ENGINE_SAMPLERS),
        )


def default_params(options: ServerOptions, tokenizer: Tokenizer) -> CompletionParams:
    """What a request without fields gets: the command line's settings."""
    bias = [(token, float32(value)) for token, value in options.logit_bias]
    return CompletionParams(
        seed=options.seed % 2**32,
        temperature=float32(options.temp),
        dynatemp_range=float32(options.dynatemp_range),
        dynatemp_exponent=float32(options.dynatemp_exp),
        top_k=options.top_k,
        top_p=float32(options.top_p),
        min_p=float32(options.min_p),
        top_n_sigma=float32(options.top_n_sigma),
        xtc_probability=float32(options.xtc_probability),
        xtc_threshold=float32(options.xtc_threshold),
        typical_p=float32(options.typical_p),
        repeat_last_n=options.repeat_last_n,
        repeat_penalty=float32(options.repeat_penalty),
        presence_penalty=float32(options.presence_penalty),
        frequency_penalty=float32(options.frequency_penalty),
        dry_multiplier=float32(options.dry_multiplier),
        dry_base=float32(options.dry_base),
        dry_allowed_length=options.dry_allowed_length,
        dry_penalty_last_n=options.dry_penalty_last_n,
        dry_sequence_breakers=list(options.dry_sequence_breakers),
        mirostat=options.mirostat,
        mirostat_tau=float32(options.mirostat_ent),
        mirostat_eta=float32(options.mirostat_lr),
        adaptive_target=float32(options.adaptive_target),
        adaptive_decay=float32(options.adaptive_decay),
        samplers=list(options.samplers),
        ignore_eos=options.ignore_eos,
        logit_bias=bias + (_end_token_bans(tokenizer) if options.ignore_eos else []),
        backend_sampling=options.backend_sampling,
        n_predict=options.n_predict,
        stop=list(options.reverse_prompt),
        n_keep=options.keep,
        grammar=options.grammar,
        json_schema=options.json_schema or None,
        cache_prompt=options.cache_prompt,
        n_cache_reuse=options.cache_reuse,
        sse_ping_interval=options.sse_ping_interval,
        verbose=options.verbose,
        speculative_types=list(options.spec_type),
        reasoning_format=options.reasoning_format,
    )


def parse_params(
    body: Mapping[str, Any], options: ServerOptions, tokenizer: Tokenizer, *, n_slots: int
) -> CompletionParams:
    """Read all fields of ``body`` (``n_slots`` bounds ``n``). ApiError 400 names the first wrong field."""
    params = default_params(options, tokenizer)
    _read_numbers(body, params, n_slots)
    _read_flags(body, params)
    _read_dry(body, params, options)
    _read_grammar(body, params, tokenizer)
    _read_chat(body, params)
    _read_bias(body, params, tokenizer)
    _read_stop(body, params, options)
    _read_samplers(body, params)
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
    ):
        setattr(params, name, read_bool(body, name, getattr(params, name)))
    for name in ("parse_tool_calls", "echo", "reasoning_control"):  # only their type matters here
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
        if any(map(tokenizer.is_special, params.preserved_tokens)):
            raise not_supported("preserved_tokens")  # would make control tokens visible
    if (triggers := body.get("grammar_triggers")) is not None:
        params.grammar_triggers = triggers if isinstance(triggers, list) else [triggers]
        if params.grammar_lazy and not params.grammar_triggers:
            raise ApiError(400, "Field 'grammar_triggers': Error: no triggers set for lazy grammar!")


def _read_chat(body: Mapping[str, Any], params: CompletionParams) -> None:
    read_int(body, ("reasoning_budget_tokens",), -1, -1, INT32_MAX, hard=True)
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
        params.logit_bias = _parse_bias(bias, tokenizer)
    if body.get("ignore_eos") is not None:
        params.ignore_eos = read_bool(body, "ignore_eos", False)
        if params.ignore_eos:
            params.logit_bias = params.logit_bias + _end_token_bans(tokenizer)


def _end_token_bans(tokenizer: Tokenizer) -> list[tuple[int, float]]:
    return [(token, -math.inf) for token in sorted(tokenizer.eog_ids)]


def _parse_bias(bias: Any, tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """``[[id or text, b], …]`` or ``{"id or text": b}``; ``false`` bans; malformed entries are skipped."""
    if isinstance(bias, dict):
        pairs: list[Any] = [[int(key) if _is_integer(key) else key, value] for key, value in bias.items()]
    else:
        pairs = bias if isinstance(bias, list) else []
    result: list[tuple[int, float]] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or pair[1] is True:
            continue
        key, value = pair
        if value is False:
            value = -math.inf
        if not isinstance(value, (int, float)) or math.isnan(value):
            continue
        result += [(token, float32(value)) for token in _bias_tokens(key, tokenizer)]
    return result


def _is_integer(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _bias_tokens(key: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(key, str):
        return tokenizer.encode(key, add_special=False, parse_special=False)
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < tokenizer.n_vocab:
        return [key]
    return []


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


def _check_lora(body: Mapping[str, Any]) -> None:
    """No adapter is ever loaded, so all ids are unknown, and unknown ids are ignored."""
    lora = body.get("lora")
    if lora is not None and not isinstance(lora, list):
        message = "Error: 'lora' must be an array of objects with 'id' and 'scale' fields"
        raise ApiError(400, f"Field 'lora': {message}")


def check_supported(params: CompletionParams) -> None:
    """ApiError 501 naming the first setting that would change the answer and is not built."""
    chain = params.samplers
    wanted = {
        "grammar": bool(params.grammar),
        "json_schema": params.json_schema is not None,
        "top_n_sigma": params.top_n_sigma > 0 and "top_n_sigma" in chain,
        "xtc_probability": params.xtc_probability > 0 and params.xtc_threshold <= 0.5 and "xtc" in chain,
        "dynatemp_range": params.dynatemp_range > 0 and params.temperature > 0 and "temperature" in chain,
        "dry_multiplier": params.dry_multiplier != 0 and params.dry_penalty_last_n != 0 and "dry" in chain,
        "mirostat": params.mirostat != 0 and params.temperature > 0,
        "adaptive_target": params.adaptive_target >= 0 and "adaptive_p" in chain,
        "samplers": "infill" in chain,
    }
    for name, is_set in wanted.items():
        if is_set:
            raise not_supported(name)


def not_supported(name: str) -> ApiError:
    """501 for a request field whose effect is not built."""
    return ApiError(501, f"The field '{name}' is not supported by this server with this value. Leave it out.")
