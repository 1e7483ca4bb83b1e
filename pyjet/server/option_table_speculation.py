"""Options for speculative decoding."""

from __future__ import annotations

from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, missing, row
from pyjet.server.options import ServerOptions

_OWN_TYPES = ("none", "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_FOREIGN_TYPES = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
_NO_SPECULATION = "speculative decoding is not available in this version; use --spec-type none"


def _spec_types(text: str) -> list[str]:
    return [values.one_of(*_OWN_TYPES, *_FOREIGN_TYPES)(item) for item in values.comma_list(text)]


def _check_types(value: Any) -> str | None:
    for name in value:
        if name in _FOREIGN_TYPES:
            return f'"{name}" needs a separate draft model; use --spec-type draft-mtp or an ngram-* type'
    return None if set(value) <= {"none"} else _NO_SPECULATION


def _add_types(options: ServerOptions, value: list[str]) -> None:
    if "spec_type" not in options.user_set:
        options.spec_type = []
    options.spec_type.extend(name for name in value if name not in options.spec_type)


def _spec(names: str, help: str, field: str, *, value: str = "N", env: str = "", **settings: Any) -> Option:
    return row(names, help, field=field, value=value, env=env, section=Section.SPECULATIVE,
               **{"convert": values.int_in(0), **settings})  # fmt: skip


def _ngram_rows() -> list[Option]:
    rows = [
        _spec("--spec-ngram-mod-n-min", "shortest draft of ngram-mod", "spec_ngram_mod_n_min"),
        _spec("--spec-ngram-mod-n-max", "longest draft of ngram-mod", "spec_ngram_mod_n_max"),
        _spec("--spec-ngram-mod-n-match", "tokens that ngram-mod looks up", "spec_ngram_mod_n_match"),
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
        section=Section.SPECULATIVE, unavailable=missing(_NO_SPECULATION, False)),
    _spec("--spec-draft-n-max", "tokens per draft at most", "spec_draft_n_max", env="SPEC_DRAFT_N_MAX"),
    _spec("--spec-draft-n-min", "shorter drafts are not used", "spec_draft_n_min", env="SPEC_DRAFT_N_MIN"),
    _spec("--spec-draft-p-min --draft-p-min", "probability below which drafting stops", "spec_draft_p_min",
          value="P", env="SPEC_DRAFT_P_MIN", convert=values.to_float),
    _spec("--spec-draft-sampling", "greedy or probabilistic drafts; answers are exact with both",
          "spec_draft_sampling", value="{greedy,probabilistic}", env="SPEC_DRAFT_SAMPLING",
          convert=values.one_of("greedy", "probabilistic")),
    row("--spec-draft-backend-sampling", "drafts are sampled on the device (always)",
        off="--no-spec-draft-backend-sampling", field="spec_draft_backend_sampling",
        env="SPEC_DRAFT_BACKEND_SAMPLING", section=Section.SPECULATIVE),
    _spec("--spec-draft-type-k -ctkd --cache-type-k-draft", "type of the keys of the draft head",
          "spec_draft_type_k", value="TYPE", env="SPEC_DRAFT_CACHE_TYPE_K",
          convert=values.one_of(*values.CACHE_TYPES)),
    _spec("--spec-draft-type-v -ctvd --cache-type-v-draft", "type of the values of the draft head",
          "spec_draft_type_v", value="TYPE", env="SPEC_DRAFT_CACHE_TYPE_V",
          convert=values.one_of(*values.CACHE_TYPES)),
    _spec("--spec-synth-len", "benchmarks: mean number of accepted tokens", "spec_synth_len", value="L",
          env="SPEC_SYNTH_LEN", convert=values.to_float, default="off", unavailable=missing(_NO_SPECULATION, 0.0)),
    _spec("--spec-synth-rates", "benchmarks: acceptance of each position", "spec_synth_rates", value="P0,P1,...",
          env="SPEC_SYNTH_RATES", convert=values.float_list, default="off",
          unavailable=missing(_NO_SPECULATION, [])),
    *_ngram_rows(),
    row("-lcs --lookup-cache-static", "lookup file that is only read", field="lookup_cache_static", value="FNAME",
        default="none", unavailable=missing(_NO_SPECULATION, None)),
    row("-lcd --lookup-cache-dynamic", "lookup file that grows", field="lookup_cache_dynamic", value="FNAME",
        default="none", unavailable=missing(_NO_SPECULATION, None)),
]  # fmt: skip
