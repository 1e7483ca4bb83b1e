"""One row of the option table: the spellings, what a value means, and how far this version supports it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyjet.server.options import ServerOptions


class Policy(enum.Enum):
    """What giving an option does."""

    MUST = "works as documented"
    ACCEPT = "parsed and checked, has no effect here, one warning"
    REFUSE = "ends the start with a message that names the alternative"
    REMOVED = "was removed long ago; the message names the successor"


class Section(enum.Enum):
    """Headings of the help page, in order."""

    COMMON = "common params"
    SAMPLING = "sampling params"
    SPECULATIVE = "speculative params"
    SPECIFIC = "example-specific params"


Convert = Callable[[str], Any]
"""Text to value; raises ValueError with a reason for people."""

Apply = Callable[["ServerOptions", Any], None]
Check = Callable[[Any], "str | None"]


@dataclass(frozen=True)
class Option:
    """A row. ``names`` switch on or take a value, ``off_names`` switch off.

    ``env``: environment variables, the first is the documented one. ``reason``: why there is no effect
    (ACCEPT), what is missing (REFUSE), the successor (REMOVED). ``unavailable``: for MUST rows, called with the
    converted value; a text means that this value needs something that this version does not have.
    ``ineffective``: same, but only a warning; ``remark``: what else the log should say about a value. ``action``: ends
    the parse, for example ``version``.
    """

    names: tuple[str, ...]
    help: str
    field: str = ""
    off_names: tuple[str, ...] = ()
    value_name: str = ""
    env: tuple[str, ...] = ()
    convert: Convert = str
    apply: Apply | None = None
    default: str | None = None
    section: Section = Section.SPECIFIC
    policy: Policy = Policy.MUST
    reason: str = ""
    unavailable: Check | None = None
    ineffective: Check | None = None
    remark: Check | None = None
    accumulates: bool = False
    n_values: int = 0
    action: str = ""

    @property
    def long_name(self) -> str:
        """The spelling used in messages: the first long one."""
        spellings = self.names or self.off_names
        return next((name for name in spellings if name.startswith("--")), spellings[0])

    @property
    def takes_value(self) -> bool:
        return self.n_values > 0

    @property
    def spellings(self) -> tuple[str, ...]:
        return self.names + self.off_names


def row(names: str, help: str, *, off: str = "", value: str = "", env: str = "", **settings: Any) -> Option:
    """Build a row; spellings and environment variables are given as one string, separated by blanks.

    Environment names are written without the prefix ``LLAMA_ARG_``, or complete after a ``$``.
    """
    return Option(
        names=tuple(names.split()),
        help=help,
        off_names=tuple(off.split()),
        value_name=value,
        env=tuple(name[1:] if name.startswith("$") else f"LLAMA_ARG_{name}" for name in env.split()),
        n_values=settings.pop("n_values", 1 if value else 0),
        **settings,
    )


def missing(what: str, default: Any) -> Check:
    """Check for options of features that are not there yet: every value but the default is refused."""
    return lambda value: None if value == default else what
