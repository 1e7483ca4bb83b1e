"""Options for sampling: the defaults of the request fields of the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, row
from pyjet.server.options import ServerOptions
from pyjet.server.sampler_names import samplers_from_chars, samplers_from_names


def _set_samplers(options: ServerOptions, value: str) -> None:
    options.samplers = samplers_from_names(value.split(";"))


def _set_sequence(options: ServerOptions, value: str) -> None:
    options.samplers = samplers_from_chars(value)


def _dropped(items: Iterable[str], known: Callable[[list[str]], list[str]]) -> str | None:
    unknown = [item for item in items if not known([item])]
    return f"left out what names no sampler: {', '.join(unknown)}" if unknown else None


def _set_temperature(options: ServerOptions, value: float) -> None:
    options.temp = max(0.0, value)


def _set_dry_base(options: ServerOptions, value: float) -> None:
    if value >= 1.0:
        options.dry_base = value


def _set_breaker(options: ServerOptions, value: str) -> None:
    # the first use replaces the default ones
    if "dry_sequence_breakers" not in options.user_set:
        options.dry_sequence_breakers = []
    if value == "none":
        options.dry_sequence_breakers = []
    else:
        options.dry_sequence_breakers.append(value)


def _add_bias(options: ServerOptions, value: tuple[int, float]) -> None:
    options.logit_bias.append(value)


def _number(names: str, field: str, help: str, *, env: str = "", **settings: Any) -> Option:
    return row(names, help, field=field, value="N", env=env, section=Section.SAMPLING,
               **{"convert": values.to_float, **settings})  # fmt: skip


SAMPLING_OPTIONS: list[Option] = [
    row("--samplers", "samplers in their order, separated by semicolons", field="samplers", value="SAMPLERS",
        apply=_set_samplers, section=Section.SAMPLING,
        remark=lambda text: _dropped(text.split(";"), samplers_from_names),
        default="penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"),
    row("-s --seed", "seed of the random numbers; -1: a random one", field="seed", value="SEED",
        convert=values.seed, default="-1", section=Section.SAMPLING),
    row("--sampler-seq --sampling-seq", "samplers in their order, one letter each", field="samplers",
        value="SEQUENCE", apply=_set_sequence, default="edskypmxt", section=Section.SAMPLING,
        remark=lambda text: _dropped(text, lambda letters: samplers_from_chars("".join(letters)))),
    row("--ignore-eos", "never generate a token that ends the answer", field="ignore_eos",
        section=Section.SAMPLING),
    _number("--temp --temperature", "temp", "temperature; 0: always the likeliest token", env="TEMPERATURE",
            apply=_set_temperature),
    _number("--top-k", "top_k", "only the N likeliest tokens; 0: all", env="TOP_K", convert=values.to_int),
    _number("--top-p", "top_p", "only the likeliest tokens that together reach this probability; 1: all",
            env="TOP_P"),
    _number("--min-p", "min_p", "only tokens at least so likely, relative to the likeliest; 0: all", env="MIN_P"),
    _number("--top-nsigma --top-n-sigma", "top_n_sigma",
            "only tokens within so many standard deviations of the best logit; -1: all"),
    _number("--xtc-probability", "xtc_probability", "chance to drop the likeliest tokens; 0: never"),
    _number("--xtc-threshold", "xtc_threshold", "probability from which XTC drops tokens"),
    _number("--typical --typical-p", "typical_p", "locally typical sampling; 1: off"),
    _number("--repeat-last-n", "repeat_last_n", "tokens that the penalties look at; 0: none",
            convert=values.int_in(0)),
    _number("--repeat-penalty", "repeat_penalty", "penalty for repeated tokens; 1: none", env="REPEAT_PENALTY",
            convert=values.repeat_penalty),
    _number("--presence-penalty", "presence_penalty", "penalty for tokens that occurred; 0: none",
            env="PRESENCE_PENALTY"),
    _number("--frequency-penalty", "frequency_penalty", "penalty per occurrence of a token; 0: none",
            env="FREQUENCY_PENALTY"),
    _number("--dry-multiplier", "dry_multiplier", "strength of the DRY penalty; 0: off"),
    _number("--dry-base", "dry_base", "base of the DRY penalty; less than 1: the default one", apply=_set_dry_base),
    _number("--dry-allowed-length", "dry_allowed_length", "repeats up to this length cost nothing",
            convert=values.int_in(0)),
    _number("--dry-penalty-last-n", "dry_penalty_last_n", "tokens that DRY looks at; 0: none",
            convert=values.int_in(0)),
    row("--dry-sequence-breaker", "text that interrupts repeats; the first one replaces the default ones, "
        "none: no text does", field="dry_sequence_breakers", value="STRING", apply=_set_breaker,
        accumulates=True, default=r"\n, :, \", *", section=Section.SAMPLING),
    _number("--adaptive-target", "adaptive_target",
            "probability that tokens are drawn towards by adaptive_p; negative: off"),
    _number("--adaptive-decay", "adaptive_decay", "how slowly the target adapts",
            convert=values.float_in(0.0, 0.99)),
    _number("--dynatemp-range", "dynatemp_range", "range of the dynamic temperature; 0: off"),
    _number("--dynatemp-exp", "dynatemp_exp", "exponent of the dynamic temperature"),
    _number("--mirostat", "mirostat", "Mirostat version; 0: off", convert=values.int_in(0, 2)),
    _number("--mirostat-lr", "mirostat_lr", "learning rate of Mirostat"),
    _number("--mirostat-ent", "mirostat_ent", "target entropy of Mirostat"),
    row("-l --logit-bias", "make a token likelier or less likely, for example 15043+1 or 15043-inf",
        field="logit_bias", value="TOKEN_ID(+/-)BIAS", convert=values.logit_bias, apply=_add_bias,
        accumulates=True, default="none", section=Section.SAMPLING),
]  # fmt: skip
