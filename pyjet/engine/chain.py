"""Which samplers a request's parameters stand for, in their order, and which of them do anything."""

from __future__ import annotations

from collections.abc import Callable

from pyjet.engine.request import SamplingParams


def _penalises(params: SamplingParams) -> bool:
    is_neutral = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty) == (1.0, 0.0, 0.0)
    return params.repeat_last_n != 0 and not is_neutral


_DOES_SOMETHING: dict[str, Callable[[SamplingParams], bool]] = {
    "penalties": _penalises,
    "dry": lambda p: p.dry_multiplier != 0.0 and p.dry_base >= 1.0 and p.dry_penalty_last_n > 0,
    "top_n_sigma": lambda p: p.top_n_sigma > 0.0,
    "top_k": lambda p: p.top_k > 0,
    "typ_p": lambda p: p.typical_p < 1.0,
    "top_p": lambda p: p.top_p < 1.0,
    "min_p": lambda p: p.min_p > 0.0,
    "xtc": lambda p: p.xtc_probability > 0.0 and p.xtc_threshold <= 0.5,
    "infill": lambda p: p.infill_tokens is not None,
    "temperature": lambda p: p.temperature != 1.0 or p.dynatemp_range > 0.0,
    "adaptive_p": lambda p: p.adaptive_target >= 0.0,
    "mirostat": lambda p: p.mirostat != 0,
}
# Those that leave the best logit the best one, and keep it.
_KEEP_THE_BEST = {"top_n_sigma", "top_k", "top_p", "min_p", "temperature", "mirostat"}


def active_samplers(params: SamplingParams) -> list[str]:
    """The names of the chain, in its order, without those that leave everything as it is.

    Mirostat takes the place of all others but the temperature, and adaptive_p comes last wherever it is named.
    Unknown names are left in.
    """
    names = ["temperature", "mirostat"] if params.mirostat else list(params.samplers)
    if "adaptive_p" in names:
        names = [name for name in names if name != "adaptive_p"] + ["adaptive_p"]
    return [name for name in names if name not in _DOES_SOMETHING or _DOES_SOMETHING[name](params)]


def is_greedy(params: SamplingParams) -> bool:
    """Whether the chain always leaves the first maximum of the logits and nothing else."""
    active = active_samplers(params)
    if "temperature" not in active or params.temperature > 0.0 or temperature_range(params) > 0.0:
        return False
    before = active[: active.index("temperature")]  # what comes after it cannot change anything
    return _KEEP_THE_BEST.issuperset(before)


def temperature_range(params: SamplingParams) -> float:
    """How far the temperature may go up and down; with mirostat it is fixed."""
    return 0.0 if params.mirostat else params.dynatemp_range
