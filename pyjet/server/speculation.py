"""Speculation as the command line describes it: what the options mean together, and the engine's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyjet.engine.settings import MAX_TAIL
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.server.options import ServerOptions
from pyjet.server.synthetic_rates import check_rates, rates_for_length

MTP = "draft-mtp"
NOT_VALID = "acceptance of drafts is simulated for a benchmark: the answers are not those of the model"


class SpeculationError(ValueError):
    """Options that do not go together; ``option`` is the one to change."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(reason)
        self.option = option


class Lookup(NamedTuple):
    """Limits of one ngram type in tokens, the last one in occurrences."""

    min_match: int
    size: int
    min_hits: int


NO_LOOKUP = Lookup(
    SpeculationSettings.lookup_min_match, SpeculationSettings.lookup_size, SpeculationSettings.lookup_min_hits
)


def is_enabled(types: Sequence[str]) -> bool:
    """Whether ``--spec-type`` names anything but ``none``."""
    return any(name != "none" for name in types)


def longest_draft(options: ServerOptions) -> int:
    """Tokens of the longest draft that the options allow, before the engine's own limit."""
    lengths = [lookup.size for lookup in _lookups(options)]
    return max([*lengths, options.spec_draft_n_max if MTP in options.spec_type else 0])


def check_speculation(options: ServerOptions) -> list[str]:
    """Warnings about options that do less than they say. Raises SpeculationError."""
    _rates(options)
    warnings = [NOT_VALID] if has_synthetic_acceptance(options) else []
    n_max = options.spec_draft_n_max
    if MTP in options.spec_type and n_max > MAX_TAIL:
        warnings.append(f"--spec-draft-n-max {n_max}: a step verifies at most {MAX_TAIL} drafts of a request")
    if MTP in options.spec_type and options.spec_draft_n_min > n_max:
        warnings.append(
            f"--spec-draft-n-min {options.spec_draft_n_min} is above --spec-draft-n-max {n_max}: no draft is used"
        )
    return warnings + _draft_cache_warnings(options)


def has_synthetic_acceptance(options: ServerOptions) -> bool:
    return options.spec_synth_len > 0 or bool(options.spec_synth_rates)


def speculation_settings(options: ServerOptions) -> SpeculationSettings:
    """The engine's view of the options. Raises SpeculationError."""
    lookups = _lookups(options)
    lookup = _widest(lookups) if lookups else NO_LOOKUP
    mtp = MTP in options.spec_type and options.spec_draft_n_max > 0
    # --spec-draft-n-max is about the MTP block; lookups alone have their own limit.
    n_max = lookup.size if lookups and not mtp else options.spec_draft_n_max
    return SpeculationSettings(
        mtp=mtp,
        lookup=bool(lookups),
        n_max=min(max(1, n_max), MAX_TAIL),
        n_min=min(options.spec_draft_n_min, MAX_TAIL),
        p_min=options.spec_draft_p_min,
        sampling="probabilistic" if options.spec_draft_sampling == "probabilistic" else "greedy",
        lookup_min_match=lookup.min_match,
        lookup_size=lookup.size,
        lookup_min_hits=lookup.min_hits,
        synth_rates=_rates(options),
        synth_adaptive=options.spec_adaptive is True,
        draft_vocab=options.spec_draft_vocab,
        adaptive=options.spec_adaptive is not False,
    )


def describe(settings: SpeculationSettings) -> str:
    """What is drafted, for the log."""
    sources = []
    if settings.mtp:
        sources.append(f"up to {settings.max_draft} tokens of the MTP block")
    if settings.lookup:
        most = min(settings.lookup_size, MAX_TAIL)
        sources.append(f"up to {most} tokens that followed the last {settings.lookup_min_match} or more before")
    how = "as many as pay" if settings.is_adaptive else "always as many as there are"
    return f"drafts: {' and '.join(sources)}, {how}" if sources else "no drafts"


def _widest(lookups: Sequence[Lookup]) -> Lookup:
    """One search serves all ngram types: it finds what any of them would."""
    matches, sizes, hits = zip(*lookups)
    return Lookup(min(matches), max(sizes), min(hits))


def _lookups(options: ServerOptions) -> list[Lookup]:
    """The ngram types that were asked for. At llama-server each has an index of its own, here all share one."""
    limits = {
        "ngram-simple": Lookup(
            options.spec_ngram_simple_size_n, options.spec_ngram_simple_size_m, options.spec_ngram_simple_min_hits
        ),
        "ngram-map-k": Lookup(
            options.spec_ngram_map_k_size_n, options.spec_ngram_map_k_size_m, options.spec_ngram_map_k_min_hits
        ),
        "ngram-map-k4v": Lookup(
            options.spec_ngram_map_k4v_size_n, options.spec_ngram_map_k4v_size_m, options.spec_ngram_map_k4v_min_hits
        ),
        "ngram-mod": Lookup(options.spec_ngram_mod_n_match, options.spec_ngram_mod_n_max, 1),
        "ngram-cache": Lookup(2, 8, 1),  # llama-server's own constants; it looks up one token as well
    }
    return [limits[name] for name in options.spec_type if name in limits and limits[name].size > 0]


def _rates(options: ServerOptions) -> tuple[float, ...]:
    """Synthetic acceptance by position, for as many drafts as a step verifies; empty without."""
    if not has_synthetic_acceptance(options):
        return ()
    option = "--spec-synth-rates" if options.spec_synth_rates else "--spec-synth-len"
    if options.spec_synth_rates and options.spec_synth_len > 0:
        raise SpeculationError(option, "--spec-synth-len says the same in another way; give one of the two")
    if not is_enabled(options.spec_type):
        raise SpeculationError(option, "there are no drafts to accept; name a kind of them with --spec-type")
    n_max = longest_draft(options)
    try:
        if options.spec_synth_len > 0:
            return rates_for_length(options.spec_synth_len, n_max, MAX_TAIL)
        check_rates(options.spec_synth_rates, n_max)
    except ValueError as error:
        raise SpeculationError(option, str(error)) from None
    return tuple(options.spec_synth_rates[:MAX_TAIL])


def _draft_cache_warnings(options: ServerOptions) -> list[str]:
    """The MTP block's keys and values lie in the pages of all others."""
    pairs = (
        ("k", options.spec_draft_type_k, options.cache_type_k),
        ("v", options.spec_draft_type_v, options.cache_type_v),
    )
    return [
        f"--spec-draft-type-{letter} {draft} has no effect: the MTP block shares the cache of type {cache}"
        for letter, draft, cache in pairs
        if f"spec_draft_type_{letter}" in options.user_set and draft != cache
    ]
