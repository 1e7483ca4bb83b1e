"""Sampling defaults that a model file brings along, for the options that the user did not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyjet.server.options import ServerOptions
from pyjet.server.sampler_names import is_repeat_penalty, samplers_from_chars, samplers_from_names

_PREFIX = "general.sampling."
_FLOATS = {
    "top_p": "top_p",
    "min_p": "min_p",
    "temp": "temp",
    "penalty_repeat": "repeat_penalty",
    "xtc_threshold": "xtc_threshold",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
    "xtc_probability": "xtc_probability",
}
_INTEGERS = {"top_k": "top_k", "penalty_last_n": "repeat_last_n", "mirostat": "mirostat"}


def apply_sampling_defaults(options: ServerOptions, metadata: Mapping[str, Any]) -> list[str]:
    """Take over ``general.sampling.*``; returns lines for the log."""
    notes: list[str] = []
    for key, field in {**_FLOATS, **_INTEGERS, "sequence": "samplers"}.items():
        value = metadata.get(_PREFIX + key)
        if value is None or field in options.user_set:
            continue
        try:
            setattr(options, field, _converted(key, value))
            notes.append(f"{field} = {getattr(options, field)} (from the model's {_PREFIX}{key})")
        except (TypeError, ValueError):
            notes.append(f"the model's {_PREFIX}{key} = {value!r} is not usable and ignored")
    return notes


def _converted(key: str, value: Any) -> Any:
    if key == "sequence":
        return _samplers(str(value))
    number = int(value) if key in _INTEGERS else float(value)
    if key == "penalty_repeat" and not is_repeat_penalty(number):
        raise ValueError
    if key == "mirostat" and number not in (0, 1, 2):
        raise ValueError
    return max(0, number) if key == "penalty_last_n" else number


def _samplers(text: str) -> list[str]:
    """Names between semicolons, or letters."""
    return samplers_from_names(text.split(";")) or samplers_from_chars(text)
