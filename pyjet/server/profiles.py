"""Profiles: further names of the model, each with its own limits, so that one server fits agents of several kinds.

A request whose ``model`` is a profile's name gets that profile; all others get ``NO_PROFILE``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyjet.server.option_table_values import comma_list, file_text

_INT = re.compile(r"[+-]?[0-9]{1,18}")
_LOWEST = {"ctx": 2, "max_tokens": 1, "priority": -(2**31)}
_HIGHEST = 2**31 - 1
_FORM = "NAME:ctx=N,max_tokens=N,priority=N"


@dataclass(frozen=True)
class Profile:
    """Limits in tokens. ``priority``: of requests that do not say theirs; higher runs first."""

    name: str
    n_ctx: int = 0  # prompt and answer together; 0: as long as a slot
    max_tokens: int = -1  # of an answer; -1: no limit
    priority: int = 0

    def context(self, n_ctx_slot: int) -> int:
        """The longest sequence on slots of ``n_ctx_slot`` tokens."""
        return self.n_ctx or n_ctx_slot

    def bound(self, max_tokens: int, n_prompt: int) -> int:
        """How many tokens may follow a prompt that fits, when ``max_tokens`` are wanted; -1: no limit."""
        limits = [max_tokens, self.max_tokens, self.n_ctx - n_prompt if self.n_ctx else -1]
        return min((limit for limit in limits if limit >= 0), default=-1)

    def is_full(self, n_tokens: int) -> bool:
        """Whether a sequence of so many tokens reached the profile's own context."""
        return 0 < self.n_ctx <= n_tokens


NO_PROFILE = Profile("")


def find_profile(profiles: Iterable[Profile], model: Any) -> Profile:
    """The profile that a request's ``model`` names, whatever that value is."""
    return next((profile for profile in profiles if profile.name == model), NO_PROFILE)


def check_profiles(profiles: Sequence[Profile], model_names: Sequence[str], n_ctx_slot: int) -> None:
    """Raises ValueError for a profile that this server cannot offer beside the model's own names."""
    for profile in profiles:
        if profile.name in model_names:
            raise ValueError(
                f'"{profile.name}" names both the model and a profile (--alias-profile); rename one of them'
            )
        if profile.n_ctx > n_ctx_slot:
            raise ValueError(
                f'the profile "{profile.name}" has a context of {profile.n_ctx} tokens, but a slot has {n_ctx_slot}; '
                "lower its ctx or start with a larger --ctx-size, fewer slots (--parallel) or --kv-unified"
            )


# the command line


def profile_option(text: str) -> list[Profile]:
    """``NAME:ctx=N,max_tokens=N,priority=N``; the name may hold colons. Raises ValueError."""
    name, colon, settings = text.rpartition(":")
    if not (name and colon):
        raise ValueError(f'expected {_FORM}, got "{text}"')
    limits: dict[str, Any] = {}
    for item in comma_list(settings):
        key, _, value = (part.strip() for part in item.partition("="))
        if key in limits:
            raise ValueError(f'profile "{name}": {key} is given twice')
        limits[key] = int(value) if _INT.fullmatch(value) else value
    return [_profile(name, limits)]


def profiles_file(path: str) -> list[Profile]:
    """A TOML file with a table for each profile. Raises ValueError naming the file."""
    try:
        return [_profile(name, table) for name, table in _toml(file_text(path)).items()]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def merge_profiles(known: Sequence[Profile], more: Sequence[Profile]) -> list[Profile]:
    """All of them, in order; ValueError for a name that comes twice."""
    merged: dict[str, Profile] = {}
    for profile in (*known, *more):
        if profile.name in merged:
            raise ValueError(f'the profile "{profile.name}" is given twice')
        merged[profile.name] = profile
    return list(merged.values())


def _profile(name: str, limits: Any) -> Profile:
    if not isinstance(limits, Mapping) or not limits:
        raise ValueError(f'profile "{name}" has no limits; they are {", ".join(_LOWEST)}')
    for key, value in limits.items():
        _check_limit(name, key, value)
    return Profile(name, limits.get("ctx", 0), limits.get("max_tokens", -1), limits.get("priority", 0))


def _check_limit(name: str, key: str, value: Any) -> None:
    if key not in _LOWEST:
        raise ValueError(f'profile "{name}": there is no "{key}", only {", ".join(_LOWEST)}')
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f'profile "{name}": {key} is a whole number, not "{value}"')
    if not _LOWEST[key] <= value <= _HIGHEST:
        raise ValueError(f'profile "{name}": {key} is at least {_LOWEST[key]} and at most {_HIGHEST}, not {value}')


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    raise ValueError("reading TOML needs Python 3.11; give each profile with --alias-profile instead")
