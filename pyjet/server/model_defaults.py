"""Sampling defaults that a model file brings along, for the options that the user did not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.options import ServerOptions

_PREFIX = "general.sampling."
_FLOATS = {
    "top_p": "top_p",
    "min_p": "min_p",
    "temp": "temp",
    "penalty_repeat": "repeat_penalty",
    "xtc_threshold": "xtc_threshold",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
}
_INTEGERS = {"top_k": "top_k", "penalty_last_n": "repeat_last_n"}
_UNAVAILABLE = {"xtc_probability": "xtc_probability", "mirostat": "mirostat"}


def apply_sampling_defaults(options: ServerOptions, metadata: Mapping[str, Any]) -> list[str]:
    """Take over ``general.sampling.*``; returns lines for the log."""
    notes: list[str] = []
    for key, field in {**_FLOATS, **_INTEGERS, **_UNAVAILABLE, "sequence": "samplers"}.items():
        value = metadata.get(_PREFIX + key)
        if value is None or field in options.user_set:
            continue
        if key in _UNAVAILABLE:
            if value != 0:
                notes.append(f"the model asks for {_PREFIX}{key} = {value}, which is not available in this version")
            continue
        try:
            setattr(options, field, _converted(key, value))
            notes.append(f"{field} = {getattr(options, field)} (from the model's {_PREFIX}{key})")
        except (TypeError, ValueError):
            notes.append(f"the model's {_PREFIX}{key} = {value!r} is not usable and ignored")
    return notes


def _converted(key: str, value: Any) -> Any:
    if key == "sequence":
        text = str(value)
        return values.sampler_names(text) if ";" in text or values.sampler_name(text) else values.sampler_letters(text)
    return int(value) if key in _INTEGERS else float(value)
