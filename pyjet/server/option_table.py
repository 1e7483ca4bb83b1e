"""The whole command line as data: every option that llama-server knows, and pyjet's own."""

from __future__ import annotations

from pyjet.server.option_table_chat import CHAT_OPTIONS, GRAMMAR_OPTIONS
from pyjet.server.option_table_inert import ACCEPTED_OPTIONS, REFUSED_OPTIONS, REMOVED_OPTIONS, ROPE_OPTIONS
from pyjet.server.option_table_model import MODEL_OPTIONS
from pyjet.server.option_table_row import Option, Section, row
from pyjet.server.option_table_sampling import SAMPLING_OPTIONS
from pyjet.server.option_table_server import CACHE_OPTIONS, LOG_OPTIONS, SERVER_OPTIONS
from pyjet.server.option_table_speculation import SPECULATION_OPTIONS

_ACTIONS = [
    row("-h --help --usage", "print this help and exit", action="help", section=Section.COMMON),
    row("--version", "print the version and exit", action="version", section=Section.COMMON),
    row("-cl --cache-list", "list downloaded models (there are none) and exit", action="cache-list",
        section=Section.COMMON),
    row("--completion-bash", "print a completion script for bash and exit", action="completion-bash",
        section=Section.COMMON),
]  # fmt: skip

OPTIONS: tuple[Option, ...] = (
    *_ACTIONS,
    *MODEL_OPTIONS,
    *ROPE_OPTIONS,
    *LOG_OPTIONS,
    *SAMPLING_OPTIONS,
    *GRAMMAR_OPTIONS,
    *SPECULATION_OPTIONS,
    *CACHE_OPTIONS,
    *CHAT_OPTIONS,
    *SERVER_OPTIONS,
    *ACCEPTED_OPTIONS,
    *REFUSED_OPTIONS,
    *REMOVED_OPTIONS,
)


def _by_spelling() -> dict[str, Option]:
    table: dict[str, Option] = {}
    for option in OPTIONS:
        for name in option.spellings:
            if name in table:
                raise ValueError(f"the option {name} is listed twice")
            table[name] = option
    return table


BY_SPELLING: dict[str, Option] = _by_spelling()
