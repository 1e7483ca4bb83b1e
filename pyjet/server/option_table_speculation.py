"""Options for speculative decoding."""

from __future__ import annotations

import math
from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, missing, row
from pyjet.server.options import ServerOptions

_OWN_TYPES = ("none", "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_FOREIGN_TYPES = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
_NO_LOOKUP_FILES = "lookup files are not read in this version: every ngram type looks into the request's own tokens"


def _spec_types(text: str) -> list[str]:
    """One occurrence of --spec-type; ``none`` in it stands for the whole."""
    types = [values.one_of(*_OWN_TYPES, *_FOREIGN_TYPES)(item) for item in values.comma_list(text)]
    if not types:
        raise ValueError(f"expected one or more of: {', '.join(_OWN_TYPES)}")
    return ["none"] if "none" in types else types


def _check_types(value: Any) -> str | None:
    for name in value:
        if name in _FOREIGN_TYPES:
            return f'"{name}" needs a separate draft model; use --spec-type draft-mtp or an ngram-* type'
    return None


def _add_types(options: ServerOptions, value: list[str]) -> None:
    """The list grows with every occurrence and keeps the ``none`` that it begins with, as at llama-server."""
    options.spec_type.extend(name for name in value if name not in options.spec_type)


def _default_types(options: ServerOptions, _value: bool) -> None:
    _add_types(options, ["ngram-mod"])
    options.spec_ngram_mod_n_match, options.spec_ngram_mod_n_min, options.spec_ngram_mod_n_max = 24, 48, 64


def _whole_number(text: str) -> float:
    """A finite number and nothing after it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f'expected a number, got "{text.strip()}"')
    return value


def _mean_length(text: str) -> float:
    value = _whole_number(text)
    if value < 1:
        raise ValueError(f"the mean length counts the token that is always there and is at least 1, not {value:g}")
    return value


def _rate_list(text: str) -> list[float]:
    return [_whole_number(item) for item in text.split(",")]


def _spec(names: str, help: str, field: str, *, value: str = "N", env: str = "", **settings: Any) -> Option:
    return row(names, help, field=field, value=value, env=env,
               **{"section": Section.SPECULATIVE, "convert": values.int_in(0), **settings})  # fmt: skip


def _ngram_rows() -> list[Option]:
    rows = [
        _spec("--spec-ngram-mod-n-min", "shortest draft of ngram-mod; longer than a step verifies, so without effect",
              "spec_ngram_mod_n_min", convert=values.int_in(0, 1024),
              ineffective=lambda _value: "ngram-mod uses drafts of any length"),
        _spec("--spec-ngram-mod-n-max", "longest draft of ngram-mod", "spec_ngram_mod_n_max",
              convert=values.int_in(0, 1024)),
        _spec("--spec-ngram-mod-n-match", "tokens that ngram-mod looks up", "spec_ngram_mod_n_match",
              convert=values.int_in(1, 1024)),
    ]
    for kind in ("simple", "map-k", "map-k4v"):
        flag, field = f"--spec-ngram-{kind}", f"spec_ngram_{kind.replace('-', '_')}"
        rows += [
            _spec(f"{flag}-size-n", f"tokens that ngram-{kind} looks up", f"{field}_size_n",
                  convert=values.int_in(1, 1024)),
            _spec(f"{flag}-size-m", f"tokens that ngram-{kind} drafts", f"{field}_size_m",
                  convert=values.int_in(1, 1024)),
            _spec(f"{flag}-min-hits", f"occurrences that ngram-{kind} needs", f"{field}_min_hits",
                  convert=values.int_in(1)),
        ]  # fmt: skip
    return rows


SPECULATION_OPTIONS: list[Option] = [
    _spec("--spec-type", "kinds of drafts, separated by commas: " + ", ".join(_OWN_TYPES), "spec_type",
          value=",".join(_OWN_TYPES), env="SPEC_TYPE", convert=_spec_types, apply=_add_types,
          unavailable=_check_types, accumulates=True, default="none"),
    row("--spec-default", "--spec-type ngram-mod with its usual lengths", field="spec_type",
        apply=_default_types),  # llama-server, too, lists it apart from the others
    _spec("--spec-draft-n-max", "tokens per draft at most; above 7 as 7", "spec_draft_n_max", env="SPEC_DRAFT_N_MAX"),
    _spec("--spec-draft-n-min", "shorter drafts are not used", "spec_draft_n_min", env="SPEC_DRAFT_N_MIN",
          convert=values.to_int),
    _spec("--spec-draft-p-min --draft-p-min", "probability below which drafting stops", "spec_draft_p_min",
          value="P", env="SPEC_DRAFT_P_MIN", convert=values.to_float),
    _spec("--spec-draft-vocab", "the draft head chooses among so many of the lowest token ids and those near the ids "
          "in the context; 0: among all", "spec_draft_vocab", env="SPEC_DRAFT_VOCAB"),
    row("--spec-adaptive", "choose the length of each draft for speed, up to the limits; --spec-fixed: as long as the "
        "limits allow (what --spec-synth-len and --spec-synth-rates do unless told otherwise)", off="--spec-fixed",
        field="spec_adaptive", section=Section.SPECULATIVE, default="enabled"),
    _spec("--spec-draft-sampling", "greedy or probabilistic drafts; answers are exact with both",
          "spec_draft_sampling", value="{greedy,probabilistic}", env="SPEC_DRAFT_SAMPLING",
          convert=values.one_of("greedy", "probabilistic")),
    row("--spec-draft-backend-sampling", "drafts are sampled on the device (always)",
        off="--no-spec-draft-backend-sampling", field="spec_draft_backend_sampling",
        env="SPEC_DRAFT_BACKEND_SAMPLING", section=Section.SPECULATIVE),
    _spec("--spec-draft-type-k -ctkd --cache-type-k-draft", "type of the keys of the draft head",
          "spec_draft_type_k", value="TYPE", env="SPEC_DRAFT_CACHE_TYPE_K",
          convert=values.one_of(*values.CACHE_TYPES), section=Section.COMMON),
    _spec("--spec-draft-type-v -ctvd --cache-type-v-draft", "type of the values of the draft head",
          "spec_draft_type_v", value="TYPE", env="SPEC_DRAFT_CACHE_TYPE_V",
          convert=values.one_of(*values.CACHE_TYPES), section=Section.COMMON),
    _spec("--spec-synth-len", "benchmarks: accept drafts by lot, so that a step gives so many tokens on average",
          "spec_synth_len", value="L", env="SPEC_SYNTH_LEN", convert=_mean_length, default="off"),
    _spec("--spec-synth-rates", "benchmarks: accept drafts by lot, position by position with these probabilities that "
          "it and all before it are accepted", "spec_synth_rates", value="P0,P1,...", env="SPEC_SYNTH_RATES",
          convert=_rate_list, default="off"),
    *_ngram_rows(),
    row("-lcs --lookup-cache-static", "lookup file that is only read", field="lookup_cache_static", value="FNAME",
        default="none", unavailable=missing(_NO_LOOKUP_FILES, None)),
    row("-lcd --lookup-cache-dynamic", "lookup file that grows", field="lookup_cache_dynamic", value="FNAME",
        default="none", unavailable=missing(_NO_LOOKUP_FILES, None)),
]  # fmt: skip
